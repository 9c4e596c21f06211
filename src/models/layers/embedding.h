// Token, position and type embedding: the word table is cut by rows over the tensor ranks (vocabulary parallel), the
// tables of positions and types, where a model learns them, are whole on each. Everything outside the tensor region
// from here on. What was looked up may be scaled, and the sum normalized.
#pragma once

#include <optional>
#include <vector>

#include "models/layers/linear.h"
#include "models/layers/norm.h"

namespace megatron {

struct EmbeddingSizes {
  std::int64_t padded_vocab = 0, hidden = 0;
  std::int64_t positions = 0;          ///< rows of the position table; 0: there is none
  int position_table = kNone;          ///< that table, where the model declares it: other layers use it too
  std::int64_t types = 0;              ///< rows of the type table; 0: there is none
  double scale = 1;                    ///< factor of the words' embeddings
  std::optional<NormSizes> norm = {};  ///< for the sum; none if absent
  double dropout = 0, deviation = 0.02;
  ModelSite dropout_site = ModelSite::embedding;
  /// A head on this rank multiplies with the same table: then the look-up's gradient is handed to
  /// context.weight_gradients as the head's product is, so that both are added in one order whatever is deferred.
  bool with_head = false;
};

class Embedding {
 public:
  struct Saved {
    Norm::Saved norm;  ///< its x lies in context.saved
  };

  /// Uses `word` (declared by the model: it may be tied to the head) and declares embedding.position.weight, unless the
  /// model has, embedding.type.weight and embedding.norm.…, if there are such.
  Embedding(ParameterBuilder& builder, int word, const EmbeddingSizes& sizes);

  /// y[s(/t), b, h] = dropout(norm(scale · word[tokens] (+ position[position_ids]) (+ type[types]))); sets y.
  void forward(Context& context, Tensor y, Saved& saved) const;
  /// Adds the tables' gradients. dy is used up (overwritten).
  void backward(Context& context, Tensor dy, const Saved& saved) const;

 private:
  /// A table that is whole on every rank, and the ids of its rows.
  struct WholeTable {
    int weight;
    ConstTensor Rows::*ids;
  };
  static std::vector<WholeTable> declare_tables(ParameterBuilder& builder, const EmbeddingSizes& sizes);

  const ParameterStore* store_;
  int word_;
  std::vector<WholeTable> tables_;
  EmbeddingSizes sizes_;
  std::optional<Norm> norm_;
  int last_parameter_;
};

}  // namespace megatron
