// Verbs on several threads: the same bits as on one, however often they are run.
#include <cmath>

#include "backend/ops/backends.h"
#include "backend/ops/device.h"
#include "backend/ops/every_verb.h"
#include "support/attention_run.h"
#include "support/catch.h"
#include "support/worst_of.h"

using namespace megatron;
using namespace megatron::test;

namespace {

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
  keep(results, "dbias", run.dbias);
  return results;
}

}  // namespace

TEST_CASE("threads: any number gives row-wise and elementwise verbs the same bits", "[threads]") {
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
  grouped.offset_step = -20;
  grouped.samples = grouped.key_heads = 2;
  grouped.heads = 6;
  AttentionCase biased = grouped;
  biased.biased = true;
  biased.buckets.bidirectional = false;
  for (AttentionCase problem : {many_heads, one_head, grouped, biased}) {
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

TEST_CASE("threads: matmul equals one thread's to rounding and repeats its bits", "[threads]") {
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
        for (std::size_t i = 0; i < want.size(); ++i) worst = worst_of(worst, std::abs(double{want[i]} - got[i]));
        CHECK(worst <= 4e-7 * (4 + static_cast<double>(k)));
        for (int time = 0; time < 3; ++time) CHECK((product(*several.ops, m, n, k, ta, tb, add) == got));
        if (threads != 2 || add) continue;
        const std::vector<float> half = product<BFloat16>(*several.ops, m, n, k, ta, tb, add),
                                 half_of_one = product<BFloat16>(*one.ops, m, n, k, ta, tb, add);
        CHECK((product<BFloat16>(*several.ops, m, n, k, ta, tb, add) == half));
        worst = 0;
        for (std::size_t i = 0; i < half.size(); ++i) {
          worst = worst_of(worst, std::abs(double{half_of_one[i]} - half[i]));
        }
        CHECK(worst <= 4e-7 * (4 + static_cast<double>(k)));
      }
    }
  }
}
