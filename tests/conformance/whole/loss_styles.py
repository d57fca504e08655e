"""Correct losses and schedules in the styles of the field, and one-line mutants: as function_styles."""

from __future__ import annotations

STYLES: dict[str, tuple[str, str, str]] = {}

STYLES["loss: annotated"] = (
    "LabelSmoothing",
    "cross_entropy",
    """
class LabelSmoothing(nn.Module):
    def __init__(self, size, padding_idx, smoothing=0.0):
        super().__init__()
        self.criterion = nn.KLDivLoss(reduction="sum")
        self.padding_idx = padding_idx
        self.confidence = 1.0 - smoothing
        self.smoothing = smoothing
        self.size = size
        self.true_dist = None

    def forward(self, x, target):
        assert x.size(1) == self.size
        true_dist = x.data.clone()
        true_dist.fill_(self.smoothing / (self.size - 2))
        true_dist.scatter_(1, target.data.unsqueeze(1), self.confidence)
        true_dist[:, self.padding_idx] = 0
        mask = torch.nonzero(target.data == self.padding_idx)
        if mask.dim() > 0:
            true_dist.index_fill_(0, mask.squeeze(), 0.0)
        self.true_dist = true_dist
        return self.criterion(x, true_dist.clone().detach())
""",
)
STYLES["loss: a mask of padding, additive"] = (
    "masked_loss",
    "cross_entropy",
    """
def masked_loss(logits, target, pad_mask):
    "pad_mask: 0 for words, -inf for padding"
    counts = torch.where(pad_mask != 0, 0.0, 1.0)
    rows = F.cross_entropy(logits, target, reduction="none")
    return (rows * counts).sum() / counts.sum()
""",
)
STYLES["loss: V - 1, mean"] = (
    "LabelSmoothingLoss",
    "cross_entropy",
    """
class LabelSmoothingLoss(nn.Module):
    def __init__(self, classes, smoothing=0.1, ignore_index=-100):
        super().__init__()
        self.confidence = 1.0 - smoothing
        self.smoothing = smoothing
        self.cls = classes
        self.ignore_index = ignore_index

    def forward(self, pred, target):
        pred = pred.log_softmax(dim=-1)
        keep = target != self.ignore_index
        with torch.no_grad():
            true_dist = torch.zeros_like(pred)
            true_dist.fill_(self.smoothing / (self.cls - 1))
            true_dist.scatter_(1, target.clamp(min=0).unsqueeze(1), self.confidence)
        loss = torch.sum(-true_dist * pred, dim=-1)
        return (loss * keep).sum() / keep.sum()
""",
)
STYLES["loss: nll and smooth"] = (
    "label_smoothed_nll_loss",
    "cross_entropy",
    """
def label_smoothed_nll_loss(lprobs, target, epsilon, ignore_index=None):
    nll_loss = -lprobs.gather(dim=-1, index=target.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    smooth_loss = -lprobs.mean(dim=-1)
    loss = (1.0 - epsilon) * nll_loss + epsilon * smooth_loss
    if ignore_index is not None:
        loss = loss.masked_fill(target.eq(ignore_index), 0.0)
    return loss.sum()
""",
)
STYLES["loss: smoothing as an option"] = (
    "loss_fn",
    "cross_entropy",
    """
def loss_fn(logits, labels, smoothing=0.1, ignore_index=-100):
    return F.cross_entropy(logits, labels, label_smoothing=smoothing, ignore_index=ignore_index)
""",
)
STYLES["loss: a constant pad, three axes"] = (
    "masked_cross_entropy",
    "cross_entropy",
    """
PAD = 0

def masked_cross_entropy(logits, targets):
    "logits (B, T, V), targets (B, T)"
    B, T, V = logits.shape
    loss = F.cross_entropy(logits.reshape(B * T, V), targets.reshape(B * T), reduction="none")
    mask = (targets.reshape(-1) != PAD).float()
    return (loss * mask).sum() / mask.sum()
""",
)
STYLES["loss: smoothed by hand, padding a word"] = (
    "LabelSmoothing",
    "cross_entropy",
    """
class LabelSmoothing(nn.Module):
    def __init__(self, vocab_size, padding_idx=0, smoothing=0.1):
        super().__init__()
        self.padding_idx, self.smoothing = padding_idx, smoothing

    def forward(self, logits, target):
        log_probs = F.log_softmax(logits, dim=-1)
        nll = -log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
        loss = (1.0 - self.smoothing) * nll - self.smoothing * log_probs.mean(dim=-1)
        keep = target != self.padding_idx
        return (loss * keep).sum() / keep.sum()
""",
)
STYLES["loss: by hand"] = (
    "cross_entropy",
    "cross_entropy",
    """
def cross_entropy(logits, targets):
    logits = logits - logits.max(dim=-1, keepdim=True).values
    logp = logits - torch.log(torch.exp(logits).sum(-1, keepdim=True))
    return -logp[torch.arange(len(targets)), targets].mean()
""",
)
STYLES["loss: classes on axis 1, sum"] = (
    "seq_loss",
    "cross_entropy",
    """
def seq_loss(output, target, pad_idx):
    "output (B, V, T)"
    B, V, T = output.shape
    crit = nn.CrossEntropyLoss(ignore_index=pad_idx, reduction="sum")
    return crit(output, target)
""",
)
STYLES["loss: a mask handed in"] = (
    "masked_loss",
    "cross_entropy",
    """
def masked_loss(logits, targets, mask):
    losses = F.cross_entropy(logits, targets.clamp(min=0), reduction="none")
    mask = mask.to(losses.dtype)
    return (losses * mask).sum() / mask.sum()
""",
)
STYLES["loss: of the tokens themselves, shifted inside"] = (
    "nll",
    "cross_entropy",
    """
def nll(logits, ids, pad=-1):
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), ignore_index=pad)
""",
)
STYLES["loss: of targets, shifted inside, with what it counts"] = (
    "NextTokenLoss",
    "cross_entropy",
    """
class NextTokenLoss(nn.Module):
    def __init__(self, vocab_size, pad=0, unused=-100):
        super().__init__()
        self.vocab_size, self.pad, self.unused = vocab_size, pad, unused

    def forward(self, logits, targets, kept_mask=None):
        logits = logits[:, :-1, :].reshape(-1, self.vocab_size)
        kept = (targets != self.pad if kept_mask is None else kept_mask)[:, 1:].reshape(-1).float()
        losses = F.cross_entropy(logits, targets[:, 1:].reshape(-1), ignore_index=self.unused, reduction="none")
        loss = (losses * kept).sum() / kept.sum().clamp(min=1.0)
        return loss, {"tokens": int(kept.sum())}
""",
)
STYLES["schedule: rate"] = (
    "rate",
    "lr_schedule",
    """
def rate(step, model_size, factor, warmup):
    if step == 0:
        step = 1
    return factor * (model_size ** (-0.5) * min(step ** (-0.5), step * warmup ** (-1.5)))
""",
)
STYLES["schedule: NoamOpt"] = (
    "NoamOpt",
    "lr_schedule",
    """
class NoamOpt:
    def __init__(self, model_size, factor, warmup, optimizer):
        self.optimizer = optimizer
        self._step = 0
        self.warmup = warmup
        self.factor = factor
        self.model_size = model_size
        self._rate = 0

    def step(self):
        self._step += 1
        rate = self.rate()
        for p in self.optimizer.param_groups:
            p["lr"] = rate
        self._rate = rate
        self.optimizer.step()

    def rate(self, step=None):
        if step is None:
            step = self._step
        step = max(step, 1)
        return self.factor * (self.model_size ** (-0.5) * min(step ** (-0.5), step * self.warmup ** (-1.5)))
""",
)
STYLES["schedule: of a model"] = (
    "NoamOptimizer",
    "lr_schedule",
    """
class NoamOptimizer:
    def __init__(self, model, warmup, factor=1.0):
        self.optimizer = torch.optim.Adam(model.parameters(), lr=0.0)
        self.d_model, self.warmup, self.factor = model.d_model, warmup, factor
        self.count = 0

    def rate(self, step=None):
        step = self.count if step is None else step
        return self.factor * self.d_model ** -0.5 * min(step ** -0.5, step * self.warmup ** -1.5)

    def step(self):
        self.count += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        self.optimizer.step()
""",
)
STYLES["schedule: ScheduledOptim"] = (
    "ScheduledOptim",
    "lr_schedule",
    """
class ScheduledOptim:
    def __init__(self, optimizer, lr_mul, d_model, n_warmup_steps):
        self._optimizer = optimizer
        self.lr_mul = lr_mul
        self.d_model = d_model
        self.n_warmup_steps = n_warmup_steps
        self.n_steps = 0

    def step_and_update_lr(self):
        self._update_learning_rate()
        self._optimizer.step()

    def _get_lr_scale(self):
        d_model = self.d_model
        n_steps, n_warmup_steps = max(self.n_steps, 1), self.n_warmup_steps
        return (d_model ** -0.5) * min(n_steps ** (-0.5), n_steps * n_warmup_steps ** (-1.5))

    def _update_learning_rate(self):
        self.n_steps += 1
        lr = self.lr_mul * self._get_lr_scale()
        for param_group in self._optimizer.param_groups:
            param_group['lr'] = lr
""",
)
STYLES["schedule: counted from 0"] = (
    "noam_lambda",
    "lr_schedule",
    """
def noam_lambda(d_model, warmup_steps):
    def lr(step):
        step = step + 1
        return d_model ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5)
    return lr
""",
)
STYLES["schedule: LRScheduler"] = (
    "NoamLR",
    "lr_schedule",
    """
class NoamLR(torch.optim.lr_scheduler.LRScheduler):
    def __init__(self, optimizer, d_model, warmup_steps, last_epoch=-1):
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        super().__init__(optimizer, last_epoch)

    def get_lr(self):
        step = max(1, self.last_epoch)
        scale = self.d_model ** -0.5 * min(step ** -0.5, step * self.warmup_steps ** -1.5)
        return [base_lr * scale for base_lr in self.base_lrs]
""",
)
STYLES["training loss: translator, sequence first"] = (
    "compute_loss",
    "training_loss",
    """
PAD_IDX = 1

def create_mask(src, tgt):
    n = tgt.shape[0]
    ahead = torch.triu(torch.ones((n, n), dtype=torch.bool), diagonal=1)
    return None, ahead, (src == PAD_IDX).t(), (tgt == PAD_IDX).t()

def compute_loss(model, src, tgt):
    "src: (S, N), tgt: (T, N)"
    tgt_input = tgt[:-1, :]
    src_mask, tgt_mask, src_padding_mask, tgt_padding_mask = create_mask(src, tgt_input)
    logits = model(src, tgt_input, src_mask, tgt_mask, src_padding_mask, tgt_padding_mask, src_padding_mask)
    tgt_out = tgt[1:, :]
    loss_fn = nn.CrossEntropyLoss(ignore_index=PAD_IDX)
    return loss_fn(logits.reshape(-1, logits.shape[-1]), tgt_out.reshape(-1))
""",
)
STYLES["training loss: shifted inside"] = (
    "lm_loss",
    "training_loss",
    """
def lm_loss(model, input_ids, pad_id=0):
    logits = model(input_ids).logits
    shift_logits = logits[..., :-1, :].contiguous()
    shift_labels = input_ids[..., 1:].contiguous()
    return F.cross_entropy(shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1), ignore_index=pad_id)
""",
)
STYLES["training loss: input and labels"] = (
    "loss_fn",
    "training_loss",
    """
PAD = 0

def loss_fn(model, x, y):
    logits, _ = model(x)
    losses = F.cross_entropy(logits.transpose(1, 2), y, reduction="none")
    keep = (y != PAD).float()
    return (losses * keep).sum() / keep.sum()
""",
)
STYLES["training loss: a model of log-probabilities, sequence first"] = (
    "lm_loss",
    "training_loss",
    """
def lm_loss(model, data, target):
    output = model(data)
    return F.nll_loss(output.view(-1, output.size(-1)), target.reshape(-1), ignore_index=0)
""",
)

MUTANTS: list[tuple[str, str, str]] = [
    ("loss: a mask of padding, additive", "counts.sum()", "counts.numel()"),
    ("loss: annotated", "1.0 - smoothing", "1.0"),
    ("loss: annotated", "self.size - 2", "self.size"),
    ("loss: annotated", "true_dist[:, self.padding_idx] = 0", "pass"),
    ("loss: annotated", "index_fill_(0, mask.squeeze(), 0.0)", "clone()"),
    ("loss: V - 1, mean", "1.0 - smoothing", "1.0"),
    ("loss: V - 1, mean", "keep.sum()", "keep.numel()"),
    ("loss: V - 1, mean", "(loss * keep)", "loss"),
    ("loss: V - 1, mean", "log_softmax(dim=-1)", "log_softmax(dim=0)"),
    ("loss: nll and smooth", "(1.0 - epsilon) * nll_loss", "nll_loss"),
    ("loss: nll and smooth", "loss = loss.masked_fill", "ignored = loss.masked_fill"),
    ("loss: smoothing as an option", "label_smoothing=smoothing, ", ""),
    ("loss: smoothing as an option", ", ignore_index=ignore_index)", ")"),
    ("loss: a constant pad, three axes", "/ mask.sum()", "/ mask.numel()"),
    ("loss: by hand", "torch.exp(logits).sum(-1, keepdim=True)", "torch.exp(logits).sum()"),
    ("loss: a mask handed in", "/ mask.sum()", "/ mask.numel()"),
    ("schedule: rate", "step ** (-0.5)", "step ** (-1.0)"),
    ("schedule: rate", "warmup ** (-1.5)", "warmup ** (-0.5)"),
    ("schedule: rate", "min(", "max("),
    ("schedule: rate", "step = 1", "pass"),
    ("schedule: NoamOpt", "self.model_size ** (-0.5)", "self.model_size ** 0.5"),
    ("schedule: NoamOpt", "self.warmup ** (-1.5)", "self.warmup ** (-1)"),
    ("schedule: of a model", "self.warmup ** -1.5", "self.warmup ** -0.5"),
    ("schedule: ScheduledOptim", "n_warmup_steps ** (-1.5)", "n_warmup_steps ** (-1.0)"),
    ("schedule: counted from 0", "step * warmup_steps ** -1.5", "step * warmup_steps ** -2"),
    ("schedule: LRScheduler", "min(step ** -0.5,", "min(step ** -0.6,"),
    ("loss: of the tokens themselves, shifted inside", "logits[:, :-1].flatten", "logits[:, 1:].flatten"),
    ("loss: of targets, shifted inside, with what it counts", "kept.sum().clamp(min=1.0)", "kept.numel()"),
    ("loss: of targets, shifted inside, with what it counts", "(losses * kept)", "losses"),
    ("loss: of the tokens themselves, shifted inside", "ignore_index=pad", "ignore_index=2"),
    ("training loss: translator, sequence first", "tgt[1:, :]", "tgt[:-1, :]"),
    ("training loss: translator, sequence first", "tgt_input = tgt[:-1, :]", "tgt_input = tgt[1:, :]"),
    ("training loss: translator, sequence first", "ignore_index=PAD_IDX", ""),
    ("training loss: shifted inside", "input_ids[..., 1:]", "input_ids[..., :-1]"),
    ("training loss: shifted inside", ", ignore_index=pad_id", ""),
    ("training loss: input and labels", "/ keep.sum()", "/ keep.numel()"),
    ("training loss: input and labels", "logits.transpose(1, 2), y,", "logits.transpose(1, 2)[..., :-1], y[:, 1:],"),
    ("training loss: input and labels", "(losses * keep)", "losses"),
]
