"""GPT-2 as PyTorch users would write it, for the scripts that compare its time with ours: tied head, learned positions,
pre-norm, tanh GELU, causal scaled_dot_product_attention, no dropout. Imports nothing: who calls brings torch."""
import argparse


def build_model(torch, shape, linear=None):
    """The model of {layers, hidden, heads, vocab, positions}; linear(x, weight, bias=None) multiplies, PyTorch's by default."""
    functional, nn = torch.nn.functional, torch.nn
    linear = linear or functional.linear

    class Linear(nn.Linear):
        def forward(self, x):
            return linear(x, self.weight, self.bias)

    hidden, heads = shape["hidden"], shape["heads"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.mlp_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.qkv, self.output = Linear(hidden, 3 * hidden), Linear(hidden, hidden)
            self.up, self.down = Linear(hidden, 4 * hidden), Linear(4 * hidden, hidden)

        def forward(self, x):
            b, s, _ = x.shape
            q, k, v = (part.view(b, s, heads, -1).transpose(1, 2)
                       for part in self.qkv(self.attention_norm(x)).split(hidden, dim=2))
            attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.output(attended.transpose(1, 2).reshape(b, s, hidden))
            return x + self.down(functional.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.word = nn.Embedding(shape["vocab"], hidden)
            self.position = nn.Embedding(shape["positions"], hidden)
            self.blocks = nn.ModuleList(Block() for _ in range(shape["layers"]))
            self.final_norm = nn.LayerNorm(hidden)
            for parameter in self.parameters():
                if parameter.dim() == 2:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, tokens, targets):
            x = self.word(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            logits = linear(self.final_norm(x), self.word.weight)
            return functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))

    return Gpt()


def names_in(known):
    """An argparse type: a list of names, with commas between them."""
    def parse(text):
        chosen = text.split(",")
        unknown = [name for name in chosen if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]}: not one of {', '.join(known)}")
        return chosen
    return parse
