#include "distributed/comm/agreement.h"

#include <algorithm>
#include <exception>
#include <new>
#include <string>
#include <vector>

#include "base/system/host_name.h"
#include "base/system/memory_usage.h"

namespace megatron {

namespace {

/// "KIND MESSAGE" as it travels between ranks; empty: no error.
std::string run_and_describe(const std::function<void()>& work, std::optional<ErrorKind> kind) {
  try {
    work();
    return {};
  } catch (const Error& error) {
    const bool keeps_its_kind = error.kind() == ErrorKind::internal || error.kind() == ErrorKind::numerics;
    const ErrorKind shown = kind && !keeps_its_kind ? *kind : error.kind();
    return fmt::format("{} {}", static_cast<int>(shown), error.what());
  } catch (const std::bad_alloc&) {
    return fmt::format("{} {}", static_cast<int>(ErrorKind::internal), kOutOfMemory);
  } catch (const std::exception& error) {
    return fmt::format("{} {}", static_cast<int>(ErrorKind::internal), error.what());
  }
}

}  // namespace

void agree(Communicator& world, const std::function<void()>& work, std::optional<ErrorKind> kind) {
  std::string failure = run_and_describe(work, kind);
  if (!world.any_rank(!failure.empty())) return;
  const std::vector<std::string> failures = world.gather_texts(failure, 0), hosts = world.gather_texts(host_name(), 0);
  // A failure that all ranks found alike needs no rank in front of it; only the root knows, and tells.
  const bool alike = std::all_of(failures.begin(), failures.end(),
                                 [&](const std::string& other) { return other == failures.front(); });
  std::string first;
  for (std::size_t rank = 0; rank < failures.size() && first.empty(); ++rank) {
    if (failures[rank].empty()) continue;
    const std::size_t space = failures[rank].find(' ');
    first = failures[rank].substr(0, space + 1);
    if (!alike) first += fmt::format("rank {} on {}: ", rank, hosts[rank]);
    first += failures[rank].substr(space + 1);
  }
  first = world.broadcast_text(first, 0);
  const std::size_t space = first.find(' ');
  throw AgreedError(static_cast<ErrorKind>(std::stoi(first.substr(0, space))), first.substr(space + 1));
}

}  // namespace megatron
