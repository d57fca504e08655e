"""Mutants of whole models whose stream is lost, or whose heads take a part of another's projection."""

from __future__ import annotations

from conformance.mutants.source import GPT, LLAMA, changed

RESIDUAL = "sublayers-have-a-residual"
INPUT = "sublayers-add-their-own-input"
OWN = "attention-projects-query-key-and-value-apart"

changed(
    "NothingLeadsAround",
    LLAMA,
    "x = x + self.attention(self.attention_norm(x), cos, sin)\n        return x + self.feed_forward(self.ffn_norm(x))",
    "x = self.attention(self.attention_norm(x), cos, sin)\n        return self.feed_forward(self.ffn_norm(x))",
    breaks=(RESIDUAL,),
    defect="No block adds what it reads to what it makes.",
)
changed(
    "NetworkAddsTheAttentionAlone",
    GPT,
    "return x + self.drop(self.mlp(self.norm2(x))), present",
    "return self.drop(mixed) + self.drop(self.mlp(self.norm2(x))), present",
    breaks=(INPUT,),
    defect="The network's result is added to what the attention gave, and the stream is lost.",
)
changed(
    "KeysEndAsQueries",
    LLAMA,
    "q, k = rotate(q, cos, sin), rotate(k, cos, sin)",
    "k = torch.cat((k[..., :2], q[:, : self.n_kv_heads, :, 2:]), -1)\n"
    "        q, k = rotate(q, cos, sin), rotate(k, cos, sin)",
    breaks=(OWN,),
    defect="The second half of each key is taken from a query.",
)
