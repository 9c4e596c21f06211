#include "cuda/nccl_lane.h"

#include <chrono>
#include <exception>
#include <system_error>
#include <thread>

#include "distributed/comm/poll_backoff.h"

namespace megatron {

namespace {

constexpr auto kPatienceAtTheEnd = std::chrono::seconds(20);

const char* advice(ncclResult_t result) {
  switch (result) {
    case ncclInvalidUsage:
    case ncclInvalidArgument:
      return "NCCL needs one GPU per rank: start no more ranks on a node than it has GPUs, or set "
             "run.communication = \"mpi\"";
    case ncclRemoteError:
    case ncclSystemError:
      return "another rank has ended, or the network between the nodes does not let NCCL through: NCCL_DEBUG=INFO in "
             "the environment says which, NCCL_SOCKET_IFNAME chooses the interface";
    default:
      return "NCCL_DEBUG=INFO in the environment makes NCCL say more; run.communication = \"mpi\" goes without it";
  }
}

ncclDataType_t type_of(DType type) {
  switch (type) {
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::f16: return ncclFloat16;
    case DType::f64: return ncclFloat64;
    case DType::i32: return ncclInt32;
    case DType::u8: return ncclUint8;
  }
  fail(ErrorKind::internal, "NCCL with an unknown dtype");
}

}  // namespace

void check_nccl(ncclResult_t result, ncclComm_t comm, const std::string& what) {
  if (result == ncclSuccess || result == ncclInProgress) [[likely]]
    return;
  const char* details = ncclGetLastError(comm);
  fail(ErrorKind::communication, "NCCL, {}: {} ({}). {}", what, ncclGetErrorString(result),
       details == nullptr ? "no details" : details, advice(result));
}

NcclLane::NcclLane(CudaDevice& device, std::string name, int blocks)
    : device_(device), name_(std::move(name)), blocks_(blocks), queue_(/*urgent=*/true) {}

void NcclLane::start_end() noexcept {
  if (comm_ == nullptr || ending_) return;
  ending_ = true;
  const bool peaceful = std::uncaught_exceptions() == 0 && state_ == State::idle;
  if (peaceful) end_ = ncclCommFinalize(comm_);
}

NcclLane::~NcclLane() {
  if (comm_ == nullptr) return;
  start_end();
  const auto give_up = std::chrono::steady_clock::now() + kPatienceAtTheEnd;
  ncclResult_t result = end_;
  for (PollBackoff backoff; result == ncclInProgress && std::chrono::steady_clock::now() < give_up; backoff.rest()) {
    if (ncclCommGetAsyncError(comm_, &result) != ncclSuccess) result = ncclInternalError;
  }
  if (result == ncclSuccess) {
    (void)ncclCommDestroy(comm_);
  } else {
    abort();
  }
}

void NcclLane::abort() noexcept {
  // It stops the device's part at once, and may then wait for other ranks of the node: no caller is to wait for that,
  // since what went wrong here has still to be said.
  try {
    if (comm_ != nullptr) std::thread([comm = comm_] { (void)ncclCommAbort(comm); }).detach();
  } catch (const std::system_error&) {  // no thread to be had: the end of the process ends it
  }
  comm_ = nullptr;
  state_ = State::aborted;
}

void NcclLane::connect(const ncclUniqueId& id, int ranks, int rank) {
  internal_check(state_ == State::unconnected, "an NCCL lane is connected twice");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = blocks_;
  const ncclResult_t result = ncclCommInitRankConfig(&comm_, ranks, id, rank, &config);
  check_nccl(result, nullptr, "connecting " + name_);
  ranks_ = ranks;
  state_ = State::connecting;
}

std::uint64_t NcclLane::push(const NcclCall& call) {
  verify(state_ != State::aborted, ErrorKind::communication, "communication after a failure on this rank");
  if (state_ == State::idle && calls_.empty()) {
    post(call);
  } else {
    calls_.push_back(call);
  }
  return ++pushed_;
}

bool NcclLane::advance() {
  verify(state_ != State::aborted, ErrorKind::communication, "communication after a failure on this rank");
  bool moved = false;
  if (state_ == State::connecting && settled("connecting")) {
    state_ = State::idle;
    moved = true;
  }
  if (state_ == State::posting && settled("first call")) {
    posted_ = queue_.mark();
    state_ = State::idle;
    moved = true;
  }
  if (state_ == State::idle && posted_ > 0) (void)settled("communication");
  while (state_ == State::idle && !calls_.empty()) {
    const NcclCall next = calls_.front();
    calls_.erase(calls_.begin());
    post(next);
    moved = true;
  }
  return moved;
}

void NcclLane::order_operations_after(std::uint64_t call) {
  internal_check(posted(call), "an NCCL call is waited for before it is posted");
  (void)settled("communication");
  device_.operations().start_after(queue_, call);
}

/// NCCL has done what it was asked for last.
bool NcclLane::settled(const char* what) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t result = ncclCommGetAsyncError(comm_, &state);
  if (result == ncclSuccess && state == ncclSuccess) [[likely]]
    return true;
  check_nccl(result, comm_, name_);
  check_nccl(state, comm_, fmt::format("{}, {}", name_, what));
  return false;
}

void NcclLane::post(const NcclCall& call) {
  device_.start_stream_after(queue_, call.after);
  const ncclResult_t result = call_nccl(call);
  check_nccl(result, comm_, fmt::format("{}, {}", name_, name_of(call.verb)));
  if (result == ncclInProgress) {
    state_ = State::posting;
  } else {
    posted_ = queue_.mark();
  }
}

ncclResult_t NcclLane::call_nccl(const NcclCall& call) {
  const ncclDataType_t type = type_of(call.type);
  const cudaStream_t stream = queue_.stream();
  switch (call.verb) {
    case Verb::all_reduce:
      return ncclAllReduce(call.input, call.output, call.elements, type, call.reduce == Reduce::sum ? ncclSum : ncclMax,
                           comm_, stream);
    case Verb::all_gather: return ncclAllGather(call.input, call.output, call.elements, type, comm_, stream);
    case Verb::reduce_scatter:
      return ncclReduceScatter(call.input, call.output, call.elements, type, ncclSum, comm_, stream);
    case Verb::broadcast: return ncclBroadcast(call.input, call.output, call.elements, type, call.peer, comm_, stream);
    case Verb::all_to_all: return exchange(call);
    case Verb::send: return ncclSend(call.input, call.elements, type, call.peer, comm_, stream);
    case Verb::receive: return ncclRecv(call.output, call.elements, type, call.peer, comm_, stream);
    default: fail(ErrorKind::internal, "NCCL has no {}", name_of(call.verb));
  }
}

/// All-to-all as a group of messages, its own part among them: NCCL has a function for it only since 2.28.
ncclResult_t NcclLane::exchange(const NcclCall& call) {
  const ncclDataType_t type = type_of(call.type);
  const std::size_t part_bytes = call.elements * size_of(call.type);
  ncclResult_t result = ncclGroupStart();
  if (result != ncclSuccess) return result;
  const auto add = [&](ncclResult_t added) {
    if (result == ncclSuccess || result == ncclInProgress) result = added;
  };
  for (int peer = 0; peer < ranks_; ++peer) {
    const std::size_t part = static_cast<std::size_t>(peer) * part_bytes;
    add(ncclSend(static_cast<const std::byte*>(call.input) + part, call.elements, type, peer, comm_, queue_.stream()));
    add(ncclRecv(static_cast<std::byte*>(call.output) + part, call.elements, type, peer, comm_, queue_.stream()));
  }
  add(ncclGroupEnd());  // after an error too: it closes the group
  return result;
}

}  // namespace megatron
