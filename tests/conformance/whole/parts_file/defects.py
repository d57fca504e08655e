"""One-line defects of everyday_parts.py: (part to point at, what is written, what is written instead).

Each changes what the part computes for some input that it is meant for; none is a convention. They were chosen before
anything was run on them. MISSED: those that no claim finds and names, each with why.
"""

DEFECTS = [
    ("make_causal_mask", "torch.tril(", "torch.triu("),
    ("make_causal_mask", "dtype=torch.bool, device=device))", "dtype=torch.bool, device=device), diagonal=-1)"),
    ("make_causal_mask", "dtype=torch.bool, device=device))", "dtype=torch.bool, device=device), diagonal=1)"),
    ("make_pad_mask", "tokens != pad_id", "tokens == pad_id"),
    ("make_pad_mask", "tokens != pad_id", "tokens > pad_id"),
    ("scaled_dot_product_attention", " / math.sqrt(query.size(-1))", ""),
    ("scaled_dot_product_attention", "math.sqrt(query.size(-1))", "query.size(-1)"),
    ("scaled_dot_product_attention", "math.sqrt(query.size(-1))", "math.sqrt(key.size(-2))"),
    ("scaled_dot_product_attention", "F.softmax(scores, dim=-1)", "F.softmax(scores, dim=-2)"),
    ("scaled_dot_product_attention", "mask == 0", "mask == 1"),
    ("scaled_dot_product_attention", 'float("-inf")', "0.0"),
    (
        "MultiHeadAttention",
        "self.num_heads, self.head_dim).transpose(1, 2)",
        "self.num_heads, self.head_dim).mT.transpose(1, 2)",
    ),
    (
        "MultiHeadAttention",
        "view(x.size(0), -1, self.num_heads, self.head_dim).transpose(1, 2)",
        "view(x.size(0), self.num_heads, -1, self.head_dim)",
    ),
    ("MultiHeadAttention", "out.transpose(1, 2).reshape", "out.reshape"),
    ("MultiHeadAttention", "self.split(self.k_proj(key))", "self.split(self.q_proj(key))"),
    ("MultiHeadAttention", "self.split(self.v_proj(value))", "self.split(self.v_proj(key))"),
    ("MultiHeadAttention", "(q, k, v, mask, self.dropout)", "(q, k, v, None, self.dropout)"),
    ("MultiHeadAttention", "return self.out_proj(out)", "return out"),
    ("LayerNorm", "unbiased=False", "unbiased=True"),
    ("LayerNorm", "mean = x.mean(dim=-1", "mean = x.mean(dim=1"),
    ("LayerNorm", "torch.sqrt(var + self.eps)", "(torch.sqrt(var) + self.eps)"),
    ("LayerNorm", "+ self.beta", "- self.beta"),
    ("RMSNorm", "x.pow(2).mean(-1, keepdim=True)", "x.pow(2).sum(-1, keepdim=True)"),
    ("RMSNorm", "torch.rsqrt(x.pow(2)", "torch.sqrt(x.pow(2)"),
    ("PositionalEncoding", "math.log(10000.0)", "math.log(1000.0)"),
    ("PositionalEncoding", "1::2] = torch.cos(", "1::2] = torch.sin("),
    ("PositionalEncoding", "self.pe[:, : x.size(1)]", "self.pe[:, : x.size(0)]"),
    ("PositionalEncoding", "(-math.log(10000.0) / d_model)", "(math.log(10000.0) / d_model)"),
    ("LearnedPositionalEmbedding", "self.weight[: x.size(1)]", "self.weight[-x.size(1) :]"),
    ("precompute_rotary", ".float() / head_dim", ".float() / (head_dim // 2)"),
    ("apply_rotary", "even * sin + odd * cos", "even * sin - odd * cos"),
    ("apply_rotary", "turned.flatten(-2)", "torch.cat(turned.unbind(-1), -1)"),
    ("FeedForward", "F.relu(self.w_1(x))", "self.w_1(x)"),
    ("FeedForward", "self.dropout(F.relu", "F.dropout(F.relu"),
    ("SwiGLU", "F.silu(self.gate_proj(x)) * self.up_proj(x)", "F.silu(self.gate_proj(x)) * self.gate_proj(x)"),
    ("SwiGLU", ") * self.up_proj(x)", ") + self.up_proj(x)"),
    ("EncoderLayer", "x = self.norm1(x + self.dropout1(attended))", "x = self.norm1(self.dropout1(attended))"),
    ("EncoderLayer", "self.norm2(x + self.dropout2(forwarded))", "self.norm1(x + self.dropout2(forwarded))"),
    ("EncoderLayer", "self.self_attn(x, x, x, mask)", "self.self_attn(x, x, x)"),
    ("DecoderLayer", "self.cross_attn(y, memory, memory, src_mask)", "self.cross_attn(y, y, memory, src_mask)"),
    ("DecoderLayer", "self.cross_attn(y, memory, memory, src_mask)", "self.self_attn(y, memory, memory, src_mask)"),
    ("DecoderLayer", "(y, y, y, tgt_mask)", "(y, y, y, src_mask)"),
    ("LabelSmoothing", "-log_probs.mean(dim=-1)", "-log_probs.sum(dim=-1)"),
    ("LabelSmoothing", "(loss * keep).sum() / keep.sum()", "loss.mean()"),
    ("LabelSmoothing", "(1.0 - self.smoothing) * nll", "nll"),
    ("noam_lr", "step**-0.5, step", "step**-1.5, step"),
    ("noam_lr", "* min(", "* max("),
    ("noam_lr", "step = max(step, 1)", "step = step"),
    ("filter_logits", "logits / temperature", "logits * temperature"),
    ("filter_logits", "logits < kth", "logits <= kth"),
    ("filter_logits", ".scatter(-1, order, before >= top_p)", ""),
    ("filter_logits", "cumsum(dim=-1) - ordered.softmax(dim=-1)", "cumsum(dim=-1)"),
    ("greedy_decode", "model(input_ids)[:, -1]", "model(input_ids)[:, 0]"),
    ("greedy_decode", "next_token = next_token.masked_fill(done, eos_id)", "pass"),
    ("greedy_decode", "range(max_new_tokens)", "range(max_new_tokens + 1)"),
]

MISSED = (
    # The heads are read with their width and their number exchanged: as good an attention, of another number of heads.
    (
        "MultiHeadAttention",
        "self.num_heads, self.head_dim).transpose(1, 2)",
        "self.num_heads, self.head_dim).mT.transpose(1, 2)",
    ),
    # Keys and values of different tokens are right elsewhere (DETR); lengths that differ are refused by torch itself.
    ("DecoderLayer", "self.cross_attn(y, memory, memory, src_mask)", "self.cross_attn(y, y, memory, src_mask)"),
    # Found, and not named: the angles are so large that float32 has no digit of their sines in common with float64.
    ("PositionalEncoding", "(-math.log(10000.0) / d_model)", "(math.log(10000.0) / d_model)"),
    # Many decoders go on behind the end of a row, and their callers cut that off.
    ("greedy_decode", "next_token = next_token.masked_fill(done, eos_id)", "pass"),
)
