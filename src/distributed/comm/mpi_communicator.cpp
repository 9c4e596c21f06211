#include "distributed/comm/mpi_communicator.h"

#include <exception>

namespace megatron {

namespace {

using Kind = MpiOperation::Kind;

// Tags: each collective of a group has its own four, reused long after it is over; channels lie above them.
constexpr std::uint64_t kOperationsInFlight = 1024;
constexpr int kTagsPerCollective = 4;
constexpr int kFirstChannelTag = static_cast<int>(kOperationsInFlight) * kTagsPerCollective;

int rank_in(MPI_Comm comm) {
  int rank = 0;
  MPI_CHECK(MPI_Comm_rank(comm, &rank));
  return rank;
}

int size_of(MPI_Comm comm) {
  int size = 0;
  MPI_CHECK(MPI_Comm_size(comm, &size));
  return size;
}

}  // namespace

MpiCommunicator::MpiCommunicator(MPI_Comm comm, std::shared_ptr<MpiEngine> engine, std::string name)
    : Communicator(rank_in(comm), size_of(comm), std::move(name)), comm_(comm), engine_(std::move(engine)) {}

MpiCommunicator::~MpiCommunicator() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  // Freeing is collective: while an exception unwinds on this rank alone it could wait for ever.
  if (finalized == 0 && std::uncaught_exceptions() == 0) MPI_Comm_free(&comm_);
}

std::unique_ptr<Communicator> MpiCommunicator::do_split(int colour, int key, const std::string& name) {
  internal_check(colour >= 0, "the colour of a split must not be negative", colour);
  MPI_Comm part = MPI_COMM_NULL;
  MPI_CHECK(MPI_Comm_split(comm_, colour, key, &part));
  return std::make_unique<MpiCommunicator>(part, engine_, name);
}

std::uint64_t MpiCommunicator::do_all_reduce(Tensor values, Reduce reduce) {
  const auto bytes = static_cast<std::int64_t>(values.bytes());
  const Kind kind = goes_by_tree(bytes, size()) ? Kind::all_reduce_tree
                    : goes_whole(bytes, size()) ? Kind::all_reduce_direct
                                                : Kind::all_reduce;
  MpiOperation& operation = create(kind, values.dtype(), values.elements(), values.data(), values.data());
  operation.reduce = reduce;
  return start_collective(operation);
}

std::uint64_t MpiCommunicator::do_all_gather(ConstTensor part, Tensor whole) {
  return start_collective(create(Kind::all_gather, part.dtype(), part.elements(), part.data(), whole.data()));
}

std::uint64_t MpiCommunicator::do_reduce_scatter(ConstTensor whole, Tensor part) {
  MpiOperation& operation = create(Kind::reduce_scatter, part.dtype(), part.elements(), whole.data(), part.data());
  operation.reduce = Reduce::sum;
  return start_collective(operation);
}

std::uint64_t MpiCommunicator::do_broadcast(Tensor values, int root) {
  MpiOperation& operation = create(Kind::broadcast, values.dtype(), values.elements(), values.data(), values.data());
  operation.peer = root;
  return start_collective(operation);
}

std::uint64_t MpiCommunicator::do_all_to_all(ConstTensor send, Tensor receive) {
  return start_collective(create(Kind::all_to_all, send.dtype(), send.elements(), send.data(), receive.data()));
}

std::uint64_t MpiCommunicator::do_send(ConstTensor values, int to, int channel) {
  MpiOperation& operation = create(Kind::send, values.dtype(), values.elements(), values.data(), nullptr);
  operation.peer = to;
  operation.tag = kFirstChannelTag + channel;
  return start(operation);
}

std::uint64_t MpiCommunicator::do_receive(Tensor values, int from, int channel) {
  MpiOperation& operation = create(Kind::receive, values.dtype(), values.elements(), nullptr, values.data());
  operation.peer = from;
  operation.tag = kFirstChannelTag + channel;
  return start(operation);
}

void MpiCommunicator::do_barrier() {
  finish(start_collective(create(Kind::barrier, DType::u8, 1, nullptr, nullptr)));
}

void MpiCommunicator::finish(std::uint64_t ticket) {
  --in_flight_;
  engine_->finish(operation_of(ticket));
}

MpiOperation& MpiCommunicator::create(Kind kind, DType dtype, std::int64_t elements, const void* input, void* output) {
  MpiOperation& operation = engine_->create();
  operation.kind = kind;
  operation.comm = comm_;
  operation.group = name().c_str();
  operation.rank = rank();
  operation.size = size();
  operation.dtype = dtype;
  operation.elements = elements;
  operation.input = static_cast<const std::byte*>(input);
  operation.output = static_cast<std::byte*>(output);
  operation.staging = &staging_;
  return operation;
}

std::uint64_t MpiCommunicator::start_collective(MpiOperation& operation) {
  operation.tag = static_cast<int>(collectives_++ % kOperationsInFlight) * kTagsPerCollective;
  return start(operation);
}

std::uint64_t MpiCommunicator::start(MpiOperation& operation) {
  ++in_flight_;
  internal_check(in_flight_ < kOperationsInFlight, "more than a thousand operations of one group in flight",
                 in_flight_);
  engine_->start(operation);
  return reinterpret_cast<std::uintptr_t>(&operation);
}

std::unique_ptr<Communicator> make_mpi_world() {
  MPI_Comm world = MPI_COMM_NULL;
  MPI_CHECK(MPI_Comm_dup(MPI_COMM_WORLD, &world));
  return std::make_unique<MpiCommunicator>(world, std::make_shared<MpiEngine>(), "world");
}

}  // namespace megatron
