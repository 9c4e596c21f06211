"""transformers' Mixtral, for the script that compares its time with ours. Imports transformers when it is built; the
caller brings torch. The model takes the random tokens and targets [b, s] of the benchmark, and gives the loss."""


def build_mixtral(torch, shape, linear=None):
    """The model of {layers, hidden, heads, vocab, positions, experts, top_k, ffn, balance}; shape["form"] is "loop", a loop
    over the experts, or "grouped", one grouped product for all; linear(x, weight, bias=None) multiplies elsewhere."""
    from transformers import MixtralConfig, MixtralForCausalLM

    functional, nn = torch.nn.functional, torch.nn
    if linear is not None:  # what the model's files call, in this process alone
        functional.linear = linear
    config = MixtralConfig(
        num_hidden_layers=shape["layers"], hidden_size=shape["hidden"], num_attention_heads=shape["heads"],
        num_key_value_heads=shape["heads"], intermediate_size=shape["ffn"], vocab_size=shape["vocab"],
        max_position_embeddings=shape["positions"], num_local_experts=shape["experts"], num_experts_per_tok=shape["top_k"],
        sliding_window=None, attention_dropout=0.0, tie_word_embeddings=False, use_cache=False, output_router_logits=True)
    config._attn_implementation = "sdpa"
    config._experts_implementation = {"loop": "eager", "grouped": "grouped_mm"}[shape["form"]]

    class Mixtral(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = MixtralForCausalLM(config)
            self.model.train()

        def forward(self, tokens, targets):
            given = self.model(input_ids=tokens)
            logits = given.logits
            loss = functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))
            return loss + shape["balance"] * given.aux_loss

    return Mixtral()
