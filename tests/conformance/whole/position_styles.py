"""Correct functions and classes of positions in the styles of the field, and one-line mutants: as function_styles."""

from __future__ import annotations

STYLES: dict[str, tuple[str, str, str]] = {}

STYLES["rotation: unit numbers"] = (
    "apply_rotary_emb",
    "rope",
    """
def apply_rotary_emb(xq, xk, freqs_cis):
    xq_ = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
    xk_ = torch.view_as_complex(xk.float().reshape(*xk.shape[:-1], -1, 2))
    freqs_cis = freqs_cis.view(1, xq_.shape[1], 1, xq_.shape[-1])
    return torch.view_as_real(xq_ * freqs_cis).flatten(3), torch.view_as_real(xk_ * freqs_cis).flatten(3)
""",
)
STYLES["rotation: cosines and sines of halves"] = (
    "apply_rotary_pos_emb",
    "rope",
    """
def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)

def apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim=1):
    cos, sin = cos.unsqueeze(unsqueeze_dim), sin.unsqueeze(unsqueeze_dim)
    return (q * cos) + (rotate_half(q) * sin), (k * cos) + (rotate_half(k) * sin)
""",
)
STYLES["rotation: cosines and sines side by side"] = (
    "apply_rope",
    "rope",
    """
def apply_rope(x, rope_cache):
    pairs = x.float().reshape(*x.shape[:-1], -1, 2)
    cache = rope_cache.view(1, pairs.size(1), 1, pairs.size(3), 2)
    a, b = pairs[..., 0], pairs[..., 1]
    out = torch.stack([a * cache[..., 0] - b * cache[..., 1], b * cache[..., 0] + a * cache[..., 1]], -1)
    return out.flatten(3).type_as(x)
""",
)
STYLES["rotation: the turned half"] = (
    "rotate_half",
    "rope",
    """
def rotate_half(x):
    x1, x2 = x.chunk(2, dim=-1)
    return torch.cat((-x2, x1), dim=-1)
""",
)
STYLES["table: unit numbers"] = (
    "precompute_freqs_cis",
    "rope",
    """
def precompute_freqs_cis(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))
    t = torch.arange(end)
    freqs = torch.outer(t, freqs).float()
    return torch.polar(torch.ones_like(freqs), freqs)
""",
)
STYLES["table: cosines and sines"] = (
    "build_rope_cache",
    "rope",
    """
def build_rope_cache(seq_len, n_elem, device=None, base=10000):
    theta = 1.0 / (base ** (torch.arange(0, n_elem, 2).float() / n_elem))
    idx_theta = torch.outer(torch.arange(seq_len).float(), theta).repeat(1, 2)
    return torch.cos(idx_theta), torch.sin(idx_theta)
""",
)
STYLES["sinusoids: a length and a width"] = (
    "get_sinusoid_encoding_table",
    "sinusoidal_positions",
    """
def get_sinusoid_encoding_table(n_position, d_hid):
    def angle(pos):
        return [pos / np.power(10000, 2 * (j // 2) / d_hid) for j in range(d_hid)]
    table = np.array([angle(pos) for pos in range(n_position)])
    table[:, 0::2] = np.sin(table[:, 0::2])
    table[:, 1::2] = np.cos(table[:, 1::2])
    return torch.FloatTensor(table).unsqueeze(0)
""",
)
STYLES["sinusoids: added to an input"] = (
    "add_positional_encoding",
    "sinusoidal_positions",
    """
def add_positional_encoding(x):
    n, d = x.shape[1:]
    rates = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
    angles = torch.arange(n).unsqueeze(1) * rates
    table = torch.zeros(n, d)
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = angles.cos()[:, : d // 2]
    return x + table
""",
)

CLASSES: dict[str, tuple[str, str, str]] = {}
"""Classes whose forward is no function of vectors: they take nothing, ids, or a length."""

CLASSES["codes without an input"] = (
    "PositionalEncoding",
    "sinusoidal_positions",
    """
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_sequence_length):
        super().__init__()
        self.d_model, self.max_sequence_length = d_model, max_sequence_length

    def forward(self):
        even = torch.arange(0, self.d_model, 2).float()
        angles = torch.arange(self.max_sequence_length).unsqueeze(1) / torch.pow(10000, even / self.d_model)
        return torch.stack([torch.sin(angles), torch.cos(angles)], dim=2).flatten(1)
""",
)
CLASSES["codes of token ids"] = (
    "PositionalEncoding",
    "sinusoidal_positions",
    """
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len, device):
        super().__init__()
        self.encoding = torch.zeros(max_len, d_model, device=device)
        pos = torch.arange(0, max_len, device=device).float().unsqueeze(1)
        two_i = torch.arange(0, d_model, step=2).float()
        self.encoding[:, 0::2] = torch.sin(pos / (10000 ** (two_i / d_model)))
        self.encoding[:, 1::2] = torch.cos(pos / (10000 ** (two_i / d_model)))

    def forward(self, x):
        batch_size, seq_len = x.size()
        return self.encoding[:seq_len, :]
""",
)
CLASSES["angles of a length"] = (
    "RotaryEmbedding",
    "rope",
    """
class RotaryEmbedding(nn.Module):
    def __init__(self, dim, theta=10000):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / (theta ** (torch.arange(0, dim, 2).float() / dim)))

    def forward(self, max_seq_len):
        freqs = torch.einsum("i,j->ij", torch.arange(max_seq_len).float(), self.inv_freq)
        return torch.cat((freqs, freqs), dim=-1)
""",
)

MUTANTS = [
    ("rotation: cosines and sines of halves", "(-x2, x1)", "(x2, x1)"),
    ("rotation: cosines and sines of halves", "(q * cos) + (rotate_half(q) * sin), ", "(q * cos) - rotate_half(q), "),
    ("rotation: cosines and sines side by side", "b * cache[..., 0] + a", "b * cache[..., 0] - a"),
    ("rotation: the turned half", "(-x2, x1)", "(x1, -x2)"),
    ("rotation: unit numbers", "torch.view_as_real(xq_ * freqs_cis)", "torch.view_as_real(xq_ + freqs_cis)"),
    ("table: unit numbers", "float() / dim", "float() / (dim // 2)"),
    ("table: unit numbers", "torch.arange(end)", "torch.arange(1, end + 1)"),
    ("table: cosines and sines", "torch.sin(idx_theta)", "torch.cos(idx_theta)"),
    ("table: cosines and sines", "1.0 / (base", "(base"),
    ("sinusoids: a length and a width", "2 * (j // 2)", "(j // 2)"),
    ("sinusoids: a length and a width", "np.cos(table[:, 1::2])", "np.sin(table[:, 1::2])"),
    ("sinusoids: added to an input", "math.log(10000.0)", "math.log(1000.0)"),
    ("sinusoids: added to an input", "return x + table", "return x * table"),
]
