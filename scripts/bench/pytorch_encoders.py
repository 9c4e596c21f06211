"""BERT and T5 as PyTorch users would write them, for the script that compares their time with ours: no dropout, no
padding, scaled_dot_product_attention. Pre-norm BERT (Megatron's) with its dense head and the order of sentences; T5 with
its bias by distance as the attention mask, RMSNorm, ReLU, no biases, a tied scaled head. Imports nothing: who calls
brings torch. Models take the random tokens and targets [b, s] of the benchmark, and give the loss."""
import math


def parts(torch, linear):
    """Layers that both models are made of; linear(x, weight, bias=None) multiplies."""
    functional, nn = torch.nn.functional, torch.nn

    class Linear(nn.Linear):
        def forward(self, x):
            return linear(x, self.weight, self.bias)

    class Attention(nn.Module):
        def __init__(self, hidden, heads, bias, scale=None):
            super().__init__()
            self.heads, self.scale = heads, scale
            self.qkv, self.output = Linear(hidden, 3 * hidden, bias=bias), Linear(hidden, hidden, bias=bias)

        def forward(self, x, mask=None):
            b, s, hidden = x.shape
            q, k, v = (part.view(b, s, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(hidden, dim=2))
            y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=self.scale)
            return self.output(y.transpose(1, 2).reshape(b, s, hidden))

    class CrossAttention(nn.Module):
        def __init__(self, hidden, heads, scale):
            super().__init__()
            self.heads, self.scale = heads, scale
            self.query, self.output = Linear(hidden, hidden, bias=False), Linear(hidden, hidden, bias=False)
            self.key_value = Linear(hidden, 2 * hidden, bias=False)

        def forward(self, x, memory):
            b, s, hidden = x.shape
            split = lambda y: y.view(b, y.shape[1], self.heads, -1).transpose(1, 2)
            k, v = (split(part) for part in self.key_value(memory).split(hidden, dim=2))
            y = functional.scaled_dot_product_attention(split(self.query(x)), k, v, scale=self.scale)
            return self.output(y.transpose(1, 2).reshape(b, s, hidden))

    return Linear, Attention, CrossAttention


def initialize(torch, model):
    for parameter in model.parameters():
        if parameter.dim() == 2:
            torch.nn.init.normal_(parameter, std=0.02)
    return model


def build_bert(torch, shape, linear=None):
    functional, nn = torch.nn.functional, torch.nn
    linear = linear or functional.linear
    Linear, Attention, _ = parts(torch, linear)
    hidden = shape["hidden"]
    gelu = lambda x: functional.gelu(x, approximate="tanh")

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.mlp_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.attention = Attention(hidden, shape["heads"], True)
            self.up, self.down = Linear(hidden, 4 * hidden), Linear(4 * hidden, hidden)

        def forward(self, x):
            x = x + self.attention(self.attention_norm(x))
            return x + self.down(gelu(self.up(self.mlp_norm(x))))

    class Bert(nn.Module):
        def __init__(self):
            super().__init__()
            self.word, self.position = nn.Embedding(shape["vocab"], hidden), nn.Embedding(shape["positions"], hidden)
            self.segment = nn.Embedding(2, hidden)  # "type" is a method of modules
            self.blocks = nn.ModuleList(Block() for _ in range(shape["layers"]))
            self.final_norm, self.head_norm = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.dense, self.pooler, self.order = Linear(hidden, hidden), Linear(hidden, hidden), Linear(hidden, 2)
            self.bias = nn.Parameter(torch.zeros(shape["vocab"]))

        def forward(self, tokens, targets):
            x = self.word(tokens) + self.position(torch.arange(tokens.shape[1])) + self.segment(tokens % 2)
            for block in self.blocks:
                x = block(x)
            x = self.final_norm(x)
            logits = linear(self.head_norm(gelu(self.dense(x))), self.word.weight, self.bias)
            order = self.order(torch.tanh(self.pooler(x[:, 0])))
            return (functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1)) +
                    functional.cross_entropy(order, targets[:, 0] % 2))

    return initialize(torch, Bert())


def buckets_of(torch, queries, keys, both_sides, buckets=32, furthest=128):
    """The bucket of each query's distance to each key (Raffel et al. 2020)."""
    distance = torch.arange(keys)[None] - torch.arange(queries)[:, None]
    first = torch.zeros_like(distance)
    if both_sides:
        buckets //= 2
        first = (distance > 0) * buckets
        distance = distance.abs()
    else:
        distance = (-distance).clamp(min=0)
    single = buckets // 2
    far = single + (torch.log(distance.clamp(min=1) / single) / math.log(furthest / single) *
                    (buckets - single)).long()
    return first + torch.where(distance < single, distance, far.clamp(max=buckets - 1))


def build_t5(torch, shape, linear=None):
    functional, nn = torch.nn.functional, torch.nn
    linear = linear or functional.linear
    Linear, Attention, CrossAttention = parts(torch, linear)
    hidden, heads = shape["hidden"], shape["heads"]
    norm = lambda: nn.RMSNorm(hidden, eps=1e-6)

    class Block(nn.Module):
        def __init__(self, crosses):
            super().__init__()
            self.attention_norm, self.mlp_norm = norm(), norm()
            self.attention = Attention(hidden, heads, False, 1.0)
            self.cross_norm = norm() if crosses else None
            self.cross = CrossAttention(hidden, heads, 1.0) if crosses else None
            self.up, self.down = Linear(hidden, 4 * hidden, bias=False), Linear(4 * hidden, hidden, bias=False)

        def forward(self, x, bias, memory=None):
            x = x + self.attention(self.attention_norm(x), bias)
            if self.cross is not None:
                x = x + self.cross(self.cross_norm(x), memory)
            return x + self.down(functional.relu(self.up(self.mlp_norm(x))))

    class Stack(nn.Module):
        def __init__(self, layers, rows, decoder):
            super().__init__()
            self.bias = nn.Embedding(32, heads)
            self.blocks = nn.ModuleList(Block(decoder) for _ in range(layers))
            self.norm = norm()
            self.register_buffer("buckets", buckets_of(torch, rows, rows, not decoder))
            hidden_keys = torch.triu(torch.full((rows, rows), float("-inf")), 1) if decoder else torch.zeros(rows, rows)
            self.register_buffer("hidden_keys", hidden_keys)

        def forward(self, x, memory=None):
            bias = self.bias(self.buckets).permute(2, 0, 1)[None] + self.hidden_keys
            for block in self.blocks:
                x = block(x, bias, memory)
            return self.norm(x)

    class T5(nn.Module):
        def __init__(self):
            super().__init__()
            self.word = nn.Embedding(shape["vocab"], hidden)
            self.encoder = Stack(shape["layers"], shape["positions"], False)
            self.decoder = Stack(shape["decoder_layers"], shape["decoder_positions"], True)

        def forward(self, tokens, targets):
            memory = self.encoder(self.word(tokens))
            rows = shape["decoder_positions"]
            y = self.decoder(self.word(targets[:, rows:2 * rows]), memory)
            logits = linear(y * hidden**-0.5, self.word.weight)
            return functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets[:, :rows].reshape(-1))

    return initialize(torch, T5())
