// The backend library's calls of NCCL; included also where it is built without NCCL.
#pragma once

#include <memory>
#include <string>

namespace megatron {

class Communicator;
class Device;

/// "2.28.9", of the library that is loaded; empty: none.
std::string nccl_version();
/// make_nccl_communicator() of backend/ops/device.h.
std::unique_ptr<Communicator> connect_nccl(Communicator& host, Device& device);

}  // namespace megatron
