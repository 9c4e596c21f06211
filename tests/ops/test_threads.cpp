// Verbs on several threads: the same bits as on one, however often they are run; and the team that they run on.
#include <omp.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <thread>

#include "base/error.h"
#include "cpu/team.h"
#include "ops/device.h"
#include "ops/ops.h"
#include "support/attention_run.h"
#include "support/tensors.h"

using namespace megatron;
using namespace megatron::test;
using Catch::Matchers::Contains;

namespace {

using Results = std::map<std::string, std::vector<std::byte>>;

template <class Vector>
void keep(Results& results, const std::string& name, const Vector& values) {
  const auto* bytes = reinterpret_cast<const std::byte*>(values.data());
  results[name].assign(bytes, bytes + values.size() * sizeof(values[0]));
}
template <class T>
void keep(Results& results, const std::string& name, const Owned<T>& x) {
  keep(results, name, x.values());
}

void require_equal(const Results& got, const Results& want) {
  REQUIRE(got.size() == want.size());
  for (const auto& [name, bytes] : want) {
    INFO(name);
    CHECK((got.at(name) == bytes));
  }
}

/// Every row-wise and elementwise verb on [s, b, h], whose outputs start from given values where they are added to.
template <class T = float>
Results row_verbs(Ops& ops, std::int64_t s, std::int64_t b, std::int64_t h) {
  Results results;
  const std::int64_t n = s * b, rows = 50;
  const auto x = random_tensor<T>({s, b, h}, 1, 3), dy = random_tensor<T>({s, b, h}, 2),
             residual = random_tensor<T>({s, b, h}, 3);
  const auto bias = random_tensor<T>({h}, 4), gamma = random_tensor<T>({h}, 5), table = random_tensor<T>({rows, h}, 6);
  const auto ids = random_ids(n, rows + 20, 7), targets = random_ids(n, h, 8), positions = counting_ids(s, 5);
  const auto weights = random_tensor({n}, 9, 1, 1);
  const Dropout dropout{.probability = 0.3f, .key = 11, .positions = positions, .first_sample = 3};
  Owned<T> y({s, b, h});
  Owned<float> sums = random_tensor({h}, 10), more_sums = random_tensor({h}, 11);
  Owned<float> mean({n}), rstd({n}), logit({n});

  y = x;
  ops.add_bias({y, bias});
  keep(results, "add_bias", y);
  ops.column_sum({x, sums});
  keep(results, "column_sum", sums);
  ops.bias_activation_forward({x, bias, y});
  keep(results, "bias_activation_forward", y);
  y = dy;
  ops.bias_activation_backward({y, x, bias, y, sums});
  keep(results, "bias_activation_backward", y);
  keep(results, "bias_activation_backward dbias", sums);
  ops.bias_activation_backward({dy, x, {}, y, {}});
  keep(results, "bias_activation_backward without biases", y);
  Owned<T> wide_x = random_tensor<T>({n, 2 * h}, 15), wide_bias = random_tensor<T>({2 * h}, 16), wide_dx({n, 2 * h});
  Owned<float> wide_sums = random_tensor({2 * h}, 17);
  ops.bias_activation_forward({wide_x, wide_bias, y, Activation::swiglu});
  keep(results, "swiglu forward", y);
  ops.bias_activation_backward({dy, wide_x, wide_bias, wide_dx, wide_sums, Activation::swiglu});
  keep(results, "swiglu backward", wide_dx);
  keep(results, "swiglu backward dbias", wide_sums);
  ops.dropout_add_forward({x, bias, residual, y, dropout});
  keep(results, "dropout_add_forward", y);
  ops.dropout_add_backward({dy, y, sums, dropout});
  keep(results, "dropout_add_backward", y);
  keep(results, "dropout_add_backward dbias", sums);
  ops.layer_norm_forward({x, gamma, bias, y, mean, rstd});
  keep(results, "layer_norm_forward", y);
  keep(results, "layer_norm_forward mean", mean);
  keep(results, "layer_norm_forward rstd", rstd);
  y = dy;  // dx lies on dy
  ops.layer_norm_backward({y, x, gamma, mean, rstd, residual, y, sums, more_sums});
  keep(results, "layer_norm_backward", y);
  keep(results, "layer_norm_backward dgamma", sums);
  keep(results, "layer_norm_backward dbeta", more_sums);
  y = x;
  ops.layer_norm_forward({y, gamma, {}, y, {}, rstd});
  keep(results, "RMSNorm forward", y);
  ops.layer_norm_backward({dy, x, gamma, {}, rstd, {}, y, sums, {}});
  keep(results, "RMSNorm backward", y);
  keep(results, "RMSNorm backward dgamma", sums);
  const auto token_positions = random_ids(n, 100000, 13);
  const auto frequencies = random_tensor({std::min<std::int64_t>(h / 2, 70)}, 14, 0.5, 0.5);
  y = x;
  ops.rotary({y.tensor().view({s, b, 1, h}), token_positions, frequencies});
  keep(results, "rotary", y);
  for (const bool accumulate : {false, true}) {
    ops.embedding_forward({ids, table, 10, y, accumulate});
    keep(results, accumulate ? "embedding_forward adding" : "embedding_forward", y);
  }
  Owned<float> dtable = random_tensor({rows, h}, 12);
  ops.embedding_backward({ids, dy, 10, dtable});
  keep(results, "embedding_backward", dtable);
  const std::int64_t vocabulary = h - std::min<std::int64_t>(h - 1, 5);
  ops.cross_entropy_local({x, targets, 0, vocabulary, mean, rstd, logit});
  keep(results, "cross_entropy_local maximum", mean);
  keep(results, "cross_entropy_local sum", rstd);
  keep(results, "cross_entropy_local logit", logit);
  Owned<double> total({1}, 0.5);
  ops.cross_entropy_loss({mean, rstd, logit, weights, {}, total});
  keep(results, "cross_entropy_loss", total);
  y = x;
  ops.cross_entropy_backward({y, targets, 0, vocabulary, mean, rstd, weights, 0.1f});
  keep(results, "cross_entropy_backward", y);
  return results;
}

/// Every verb on flat ranges of n elements.
Results flat_verbs(Ops& ops, std::int64_t n) {
  Results results;
  const auto x = random_tensor({n}, 1), gradient = random_tensor({n}, 2);
  Owned<float> value = x, m = random_tensor({n}, 3), v = random_tensor({n}, 4, 1, 1), one({1}, 0.7f), zero({1});
  ops.adamw({.value = value,
             .gradient = gradient,
             .m = m,
             .v = v,
             .clip_factor = one,
             .skip = zero,
             .learning_rate = 0.1f,
             .weight_decay = 0.1f,
             .step = 3});
  keep(results, "adamw value", value);
  keep(results, "adamw m", m);
  keep(results, "adamw v", v);
  ops.sgd({.value = value,
           .gradient = gradient,
           .m = m,
           .clip_factor = one,
           .skip = zero,
           .learning_rate = 0.1f,
           .weight_decay = 0.1f});
  keep(results, "sgd value", value);
  keep(results, "sgd m", m);
  Owned<double> total({1}, 0.25), wide({n});
  ops.square_sum({x, total});
  keep(results, "square_sum", total);
  ops.normal({.y = value, .key = 5, .first_row = 3, .global_columns = n});
  keep(results, "normal", value);
  const Tensor rows(value.tensor().data(), {3, n / 3}, DType::f32);
  ops.normal({.y = rows, .key = 5, .first_row = 3, .first_column = 7, .global_columns = n});
  keep(results, "normal, a part of each row", value);
  ops.fill(value, 0.3);
  keep(results, "fill", value);
  ops.copy(x, value);
  keep(results, "copy", value);
  ops.copy(x, wide);
  keep(results, "copy to f64", wide);
  std::vector<std::uint16_t> half(static_cast<std::size_t>(n));
  ops.copy(x, Tensor(half.data(), {n}, DType::bf16));
  keep(results, "copy to bf16", half);
  ops.add(gradient, value);
  keep(results, "add", value);
  ops.scale(value, 1.7);
  keep(results, "scale", value);
  return results;
}

template <class T = float>
Results attention(Ops& ops, const AttentionCase& problem) {
  Run<T> run(problem, Inputs<T>(problem));
  run.execute(ops);
  Results results;
  keep(results, "out", run.out.values());
  keep(results, "log_sum_exp", run.log_sum_exp);
  keep(results, "dq", run.dq.values());
  keep(results, "dk", run.dk.values());
  keep(results, "dv", run.dv.values());
  return results;
}

template <class T = float>
std::vector<float> product(Ops& ops, std::int64_t m, std::int64_t n, std::int64_t k, bool ta, bool tb, bool add) {
  const auto a = random_tensor<T>(ta ? Shape{k, m} : Shape{m, k}, 1),
             b = random_tensor<T>(tb ? Shape{n, k} : Shape{k, n}, 2);
  Owned<float> c = random_tensor({m, n + 3}, 3);
  ops.matmul({a, b, ta, tb, c.tensor().slice(1, 0, n), add});
  return c.copied_values();
}

std::vector<std::string> tasks_of_process() {
  std::vector<std::string> tasks;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) tasks.push_back(task.path());
  return tasks;
}

/// Those that were not there before; of the others some may have ended meanwhile, as earlier tests' do.
std::vector<std::string> tasks_since(const std::vector<std::string>& before) {
  std::vector<std::string> tasks = tasks_of_process();
  std::erase_if(tasks, [&](const auto& task) { return std::count(before.begin(), before.end(), task) != 0; });
  return tasks;
}

/// The signals that a thread blocks, as the kernel tells.
std::uint64_t blocked_signals(const std::string& task) {
  std::ifstream file(task + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("SigBlk:")) return std::stoull(line.substr(7), nullptr, 16);
  }
  return 0;
}

}  // namespace

TEST_CASE("row-wise and elementwise verbs give the same bits on any number of threads", "[threads]") {
  const Backend one = make_cpu_backend();
  struct Size {
    std::int64_t s, b, h;
  };
  const Size sizes[] = {{33, 7, 129}, {17, 2, 1000}, {1, 1, 50001}, {2051, 3, 7}, {64, 4, 768}, {16385, 1, 1}};
  for (const Size& size : sizes) {
    CAPTURE(size.s, size.b, size.h);
    const Results rows = row_verbs(*one.ops, size.s, size.b, size.h);
    const Results flat = flat_verbs(*one.ops, size.s * size.b * size.h);
    for (const int threads : {2, 3, 5}) {
      CAPTURE(threads);
      const Backend several = make_cpu_backend(threads);
      for (int time = 0; time < 5; ++time) {
        require_equal(row_verbs(*several.ops, size.s, size.b, size.h), rows);
        require_equal(flat_verbs(*several.ops, size.s * size.b * size.h), flat);
      }
    }
  }
  const Results half = row_verbs<BFloat16>(*one.ops, 33, 7, 129);
  for (const int threads : {2, 3}) {
    const Backend several = make_cpu_backend(threads);
    require_equal(row_verbs<BFloat16>(*several.ops, 33, 7, 129), half);
  }
}

TEST_CASE("attention gives the same bits on any number of threads", "[threads]") {
  const Backend one = make_cpu_backend();
  AttentionCase many_heads, one_head, grouped;
  many_heads.queries = many_heads.keys = 100;
  many_heads.samples = 3;
  many_heads.heads = many_heads.key_heads = 5;
  one_head.queries = one_head.keys = 700;
  one_head.size = 32;
  grouped.queries = 161;
  grouped.keys = 200;
  grouped.query_offset = 39;
  grouped.samples = grouped.key_heads = 2;
  grouped.heads = 6;
  for (AttentionCase problem : {many_heads, one_head, grouped}) {
    for (const double dropout : {0.0, 0.25}) {
      problem.dropout = dropout;
      problem.positions.clear();
      for (int i = 0; i < problem.queries; ++i) problem.positions.push_back(i + 3);
      CAPTURE(problem.queries, problem.heads, dropout);
      const Results want = attention(*one.ops, problem);
      for (const int threads : {2, 3, 5}) {
        CAPTURE(threads);
        const Backend several = make_cpu_backend(threads);
        for (int time = 0; time < 5; ++time) require_equal(attention(*several.ops, problem), want);
        require_equal(attention<Float16>(*several.ops, problem), attention<Float16>(*one.ops, problem));
      }
    }
  }
}

TEST_CASE("matmul on several threads: to rounding that of one, and always the same bits", "[threads]") {
  const Backend one = make_cpu_backend();
  const std::int64_t sizes[][3] = {{129, 333, 77}, {1, 2000, 1100}, {2000, 1, 1100}, {5, 700, 900}, {768, 256, 96}};
  for (const auto& [m, n, k] : sizes) {
    for (int bits = 0; bits < 8; ++bits) {
      const bool ta = (bits & 1) != 0, tb = (bits & 2) != 0, add = (bits & 4) != 0;
      const std::vector<float> want = product(*one.ops, m, n, k, ta, tb, add);
      for (const int threads : {2, 3, 4}) {
        CAPTURE(m, n, k, ta, tb, add, threads);
        const Backend several = make_cpu_backend(threads);
        const std::vector<float> got = product(*several.ops, m, n, k, ta, tb, add);
        double worst = 0;
        for (std::size_t i = 0; i < want.size(); ++i) worst = std::max(worst, std::abs(double{want[i]} - got[i]));
        CHECK(worst <= 4e-7 * (4 + static_cast<double>(k)));
        for (int time = 0; time < 3; ++time) CHECK((product(*several.ops, m, n, k, ta, tb, add) == got));
        if (threads != 2 || add) continue;
        const std::vector<float> half = product<BFloat16>(*several.ops, m, n, k, ta, tb, add),
                                 half_of_one = product<BFloat16>(*one.ops, m, n, k, ta, tb, add);
        CHECK((product<BFloat16>(*several.ops, m, n, k, ta, tb, add) == half));
        worst = 0;
        for (std::size_t i = 0; i < half.size(); ++i) {
          worst = std::max(worst, std::abs(double{half_of_one[i]} - half[i]));
        }
        CHECK(worst <= 4e-7 * (4 + static_cast<double>(k)));
      }
    }
  }
}

TEST_CASE("a team does every part once and cuts ranges that fit", "[threads]") {
  for (const int threads : {1, 2, 3}) {
    const Team team(threads);
    for (const std::int64_t parts : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<std::size_t>(parts));
      team.each(parts, [&](std::int64_t part, int thread) {
        if (thread >= 0 && thread < threads) ++done[static_cast<std::size_t>(part)];
      });
      CHECK(std::all_of(done.begin(), done.end(), [](const auto& times) { return times == 1; }));
    }
    for (const std::int64_t count : {0, 1, 63, 64, 65, 1000, 1 << 16}) {
      for (const std::int64_t work : {1, 1 << 20}) {
        std::vector<std::atomic<int>> done(static_cast<std::size_t>(count));
        std::atomic<int> calls{0};
        team.ranges(count, 64, work, [&](std::int64_t first, std::int64_t last) {
          ++calls;
          if (first % 64 == 0 && (last % 64 == 0 || last == count)) {
            for (std::int64_t i = first; i < last; ++i) ++done[static_cast<std::size_t>(i)];
          }
        });
        CHECK(std::all_of(done.begin(), done.end(), [](const auto& times) { return times == 1; }));
        CHECK(calls <= (work == 1 ? 1 : threads));
      }
    }
  }
}

TEST_CASE("an error on any thread of a team reaches the caller", "[threads]") {
  const Team team(3);
  for (std::int64_t bad = 0; bad < 20; ++bad) {
    std::atomic<int> done{0};
    const auto work = [&] {
      team.each(20, [&](std::int64_t part, int) {
        if (part == bad) fail(ErrorKind::numerics, "part {}", part);
        ++done;
      });
    };
    CHECK_THROWS_WITH(work(), Contains(fmt::format("part {}", bad)));
    CHECK(done == 19);
  }
}

TEST_CASE("workers are started once, block signals except those of crashes, and one thread starts none", "[threads]") {
  std::thread([] {  // a rank of its own, so that no other test's workers are counted
    const std::vector<std::string> before = tasks_of_process();
    const auto new_tasks = [&] { return tasks_since(before); };
    const Backend one = make_cpu_backend(1);
    row_verbs(*one.ops, 33, 7, 129);
    CHECK(new_tasks().empty());
    const Backend several = make_cpu_backend(3);
    const std::vector<std::string> workers = new_tasks();
    CHECK(workers.size() == 2);
    for (const std::string& worker : workers) {
      for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
        CHECK((blocked_signals(worker) >> (signal - 1) & 1) == 1);
      }
      for (const int crash : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {  // have to be reported
        CHECK((blocked_signals(worker) >> (crash - 1) & 1) == 0);
      }
    }
    sigset_t mine;
    pthread_sigmask(SIG_BLOCK, nullptr, &mine);
    CHECK(sigismember(&mine, SIGTERM) == 0);
    for (int time = 0; time < 3; ++time) {
      row_verbs(*several.ops, 33, 7, 129);
      product(*several.ops, 300, 300, 300, false, true, false);
    }
    CHECK(new_tasks() == workers);
  })
      .join();
}

TEST_CASE("fewer threads than asked for are an error, not a slow run", "[threads]") {
  std::thread([] {
    omp_set_dynamic(1);  // as OMP_DYNAMIC=true; this thread's alone
    CHECK_THROWS_WITH(Team(1000), Contains("run.threads = 1000") && Contains("OMP_DYNAMIC"));
  }).join();
}

TEST_CASE("matmul stays on the calling thread, in every rank that is a thread", "[matmul]") {
  constexpr std::int64_t n = 384;
  const Owned<float> x = random_tensor({n, n}, 5);
  std::vector<float> results[3];
  std::size_t started[3] = {};
  const auto multiply = [&](int rank) {
    const Backend backend = make_cpu_backend();
    results[rank].resize(n * n);
    const std::vector<std::string> before = tasks_of_process();
    for (int i = 0; i < 3; ++i) {
      backend.ops->matmul({x, x, false, true, Tensor(results[rank].data(), {n, n}, DType::f32), false});
    }
    started[rank] = tasks_since(before).size();
  };
  multiply(0);
  CHECK(started[0] == 0);
  std::thread first(multiply, 1);
  first.join();
  CHECK(started[1] == 0);
  std::thread second(multiply, 1), third(multiply, 2);
  second.join();
  third.join();
  CHECK(std::memcmp(results[0].data(), results[1].data(), sizeof(float) * n * n) == 0);
  CHECK(std::memcmp(results[0].data(), results[2].data(), sizeof(float) * n * n) == 0);
}
