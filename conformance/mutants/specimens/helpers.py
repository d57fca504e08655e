"""Functions as they stand beside models: batches, pooling, losses, metrics, schedules, decoding. All are correct."""

import math

import torch
import torch.nn.functional as F

PAD, CLS, SEP, MASK = 0, 1, 2, 3
SPECIAL = 4
FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE = 4, 5, 6


def get_batch(data, block_size, batch_size):
    """Random pieces of a long text, and the same pieces one word further."""
    starts = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([data[i : i + block_size] for i in starts])
    y = torch.stack([data[i + 1 : i + 1 + block_size] for i in starts])
    return x, y


def batchify(ids, batch_size):
    """Rows that are contiguous pieces of the text."""
    columns = len(ids) // batch_size
    return ids[: columns * batch_size].reshape(batch_size, columns)


def shift_right(labels, start_id, pad_id):
    """The decoder's input: the labels one place later, padding where they are -100."""
    moved = labels.new_full(labels.shape, start_id)
    moved[:, 1:] = labels[:, :-1]
    return moved.masked_fill(moved == -100, pad_id)


def position_ids(input_ids, padding_idx):
    """Real words count from padding_idx + 1."""
    real = input_ids.ne(padding_idx).long()
    return torch.cumsum(real, 1) * real + padding_idx


def make_std_mask(tgt, pad):
    """Hide padding and future words."""
    size = tgt.size(-1)
    return (tgt != pad).unsqueeze(-2) & torch.ones(1, size, size, dtype=torch.bool).tril()


def mask_tokens(ids, vocab_size, probability=0.15):
    """80 % of the selected words become the mask, 10 % another word, 10 % stay."""
    labels, given = ids.clone(), ids.clone()
    chosen = torch.bernoulli(torch.full(ids.shape, probability).masked_fill(ids < SPECIAL, 0.0)).bool()
    labels[~chosen] = -100
    masked = torch.bernoulli(torch.full(ids.shape, 0.8)).bool() & chosen
    given[masked] = MASK
    redrawn = torch.bernoulli(torch.full(ids.shape, 0.5)).bool() & chosen & ~masked
    words = torch.randint(SPECIAL, vocab_size, ids.shape)
    given[redrawn] = words[redrawn]
    return given, labels


def relative_position_bucket(relative_position, bidirectional=True, num_buckets=32, max_distance=128):
    """The buckets of T5; relative_position is that of the key less that of the query."""
    bucket = torch.zeros_like(relative_position)
    if bidirectional:
        num_buckets //= 2
        bucket = bucket + (relative_position > 0).long() * num_buckets
        away = relative_position.abs()
    else:
        away = (-relative_position).clamp(min=0)
    exact = num_buckets // 2
    growth = torch.log(away.clamp(min=1).float() / exact) / math.log(max_distance / exact)
    far = (exact + growth * (num_buckets - exact)).long().clamp(max=num_buckets - 1)
    return bucket + torch.where(away < exact, away, far)


def class_weights(labels, n_classes):
    """Rare classes weigh more."""
    counts = torch.bincount(labels, minlength=n_classes).clamp(min=1)
    return len(labels) / (n_classes * counts)


def repeat_kv(x, n_rep):
    """(B, G, T, d) to (B, G * n_rep, T, d)."""
    return x.repeat_interleave(n_rep, dim=1)


def make_windows(series, context, horizon):
    """All windows of a series, and the steps that follow each."""
    starts = range(len(series) - context - horizon + 1)
    past = torch.stack([series[s : s + context] for s in starts])
    future = torch.stack([series[s + context : s + context + horizon] for s in starts])
    return past, future


def split_series(series):
    """Train, validation and test parts in the order of time."""
    a, b = int(0.7 * len(series)), int(0.8 * len(series))
    return series[:a], series[a:b], series[b:]


def returns_to_go(rewards, gamma=1.0):
    """Discounted sums of this and all later rewards."""
    found, running = torch.zeros_like(rewards), 0.0
    for t in reversed(range(len(rewards))):
        running = rewards[t] + gamma * running
        found[t] = running
    return found


@torch.no_grad()
def update_ema(ema_model, model, decay):
    """The slow weights follow the new ones."""
    for slow, new in zip(ema_model.parameters(), model.parameters(), strict=True):
        slow.copy_(decay * slow + (1 - decay) * new)


def denormalize(x, mean, std):
    """Undo (x - mean) / std."""
    return x * std + mean


def mean_pool(hidden, mask):
    """The mean of the real words; mask is 1 where a word is real."""
    weight = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)


def contrastive_loss(a, b, temperature=0.05):
    """Symmetric: row i of a belongs to row i of b."""
    a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
    scores = a @ b.t() / temperature
    own = torch.arange(len(a))
    return 0.5 * (F.cross_entropy(scores, own) + F.cross_entropy(scores.t(), own))


def pad_batch(texts, pad_id=PAD, max_len=64):
    """ids (B, T), padded on the right, and the mask of real words."""
    texts = [text[:max_len] for text in texts]
    longest = max(map(len, texts))
    ids = torch.tensor([text + [pad_id] * (longest - len(text)) for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in texts])
    return ids, mask


def collate_next_words(texts):
    """Inputs without the last word and targets without the first, both (B, T); targets of padding are -100."""
    longest = max(map(len, texts)) - 1
    inputs = torch.full((len(texts), longest), PAD)
    targets = torch.full((len(texts), longest), -100)
    for row, text in enumerate(texts):
        inputs[row, : len(text) - 1] = torch.tensor(text[:-1])
        targets[row, : len(text) - 1] = torch.tensor(text[1:])
    return inputs, targets


def collate_pairs(pairs, bos_id=7, eos_id=8):
    """Sources with an end, and targets with a start and an end, padded on the right."""
    src = [torch.tensor([*one, eos_id]) for one, _ in pairs]
    tgt = [torch.tensor([bos_id, *other, eos_id]) for _, other in pairs]
    return tuple(torch.nn.utils.rnn.pad_sequence(side, batch_first=True, padding_value=PAD) for side in (src, tgt))


def encode_pair(tokens_a, tokens_b):
    """[CLS] a [SEP] b [SEP], and the types of the words."""
    input_ids = [CLS, *tokens_a, SEP, *tokens_b, SEP]
    token_type_ids = [0] * (len(tokens_a) + 2) + [1] * (len(tokens_b) + 1)
    return {"input_ids": input_ids, "token_type_ids": token_type_ids}


def masked_mse(pred, target, mask):
    """Mean squared error over the real steps."""
    error = (pred - target).pow(2).mean(-1)
    return (error * mask).sum() / mask.sum()


def next_token_loss(logits, input_ids, attention_mask):
    """The mean cross-entropy of the words behind each place, over those that are real."""
    labels = input_ids[:, 1:].masked_fill(attention_mask[:, 1:] == 0, -100)
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), labels)


def answer_loss(logits, tokens, prompt_lengths, pad_id=PAD):
    """The mean cross-entropy of the words of the answers: neither prompts nor padding are taught."""
    labels, places = tokens[:, 1:], torch.arange(1, tokens.shape[1])
    keep = (places >= prompt_lengths[:, None]) & (labels != pad_id)
    lost = F.cross_entropy(logits[:, :-1].transpose(1, 2), labels, reduction="none")
    return (lost * keep).sum() / keep.sum()


def quantile_loss(pred, target, quantiles):
    """Pinball loss: pred (..., Q), target (...)."""
    level = torch.tensor(quantiles)
    error = target.unsqueeze(-1) - pred
    return torch.maximum(level * error, (level - 1) * error).mean()


def soft_cross_entropy(logits, target):
    """Cross-entropy with labels that are probabilities."""
    return -(target * logits.log_softmax(-1)).sum(-1).mean()


def bce_loss(pos_logits, neg_logits, pos):
    """True against false items; padding (0) is left out."""
    real = pos != 0
    return (F.softplus(-pos_logits[real]) + F.softplus(neg_logits[real])).mean()


def load_balancing_loss(router_probs, expert_index, n_experts):
    """Switch Transformer: n_experts * sum of f_i P_i."""
    share = F.one_hot(expert_index, n_experts).float().mean(0)
    return n_experts * (share * router_probs.mean(0)).sum()


def router_z_loss(logits):
    """The mean of the squared log-sum-exp."""
    return logits.logsumexp(-1).pow(2).mean()


def lr_at(step, base=1e-3, warmup=100, total=1000, floor=1e-4):
    """Linear warm-up, then a cosine down to the floor."""
    if step < warmup:
        return base * (step + 1) / warmup
    if step > total:
        return floor
    share = (step - warmup) / (total - warmup)
    return floor + 0.5 * (base - floor) * (1 + math.cos(math.pi * share))


def patchify(images, size):
    """(B, C, H, W) to (B, N, C * size * size)."""
    b, c, h, w = images.shape
    x = images.reshape(b, c, h // size, size, w // size, size).permute(0, 2, 4, 1, 3, 5)
    return x.reshape(b, -1, c * size * size)


def unpatchify(patches, size, channels, height, width):
    """The inverse of patchify."""
    x = patches.reshape(len(patches), height // size, width // size, channels, size, size)
    return x.permute(0, 3, 1, 4, 2, 5).reshape(len(patches), channels, height, width)


def mixup(x, y, lam, perm):
    """Mixed images, both labels, and the share of the first."""
    return lam * x + (1 - lam) * x[perm], y, y[perm], lam


def drop_path(x, p, training):
    """Samples lose the branch; the others are scaled up."""
    if p == 0 or not training:
        return x
    keep = torch.rand(len(x), *[1] * (x.dim() - 1)) >= p
    return x * keep / (1 - p)


def greedy_ctc(log_probs, lengths, blank=0):
    """The best path: repeats merged, blanks dropped."""
    texts = []
    for path, length in zip(log_probs.argmax(-1).tolist(), lengths.tolist(), strict=True):
        before, text = None, []
        for word in path[:length]:
            if word != before and word != blank:
                text.append(word)
            before = word
        texts.append(text)
    return texts


def ctc_beam_search(log_probs, beam=8, blank=0):
    """(T, V) to the likeliest text; of each prefix what ends in a blank, and what does not."""
    beams: dict[tuple[int, ...], tuple[float, float]] = {(): (1.0, 0.0)}
    for frame in log_probs.exp().tolist():
        grown: dict[tuple[int, ...], tuple[float, float]] = {}
        for text, (in_blank, in_letter) in beams.items():
            for word, p in enumerate(frame):
                whole = (in_blank + in_letter) * p
                if word == blank:
                    add(grown, text, whole, 0.0)
                elif text[-1:] == (word,):
                    add(grown, text, 0.0, in_letter * p)
                    add(grown, (*text, word), 0.0, in_blank * p)
                else:
                    add(grown, (*text, word), 0.0, whole)
        beams = dict(sorted(grown.items(), key=lambda one: -sum(one[1]))[:beam])
    best, _ = max(beams.items(), key=lambda one: sum(one[1]))
    return list(best)


def add(grown, text, in_blank, in_letter):
    before = grown.get(text, (0.0, 0.0))
    grown[text] = (before[0] + in_blank, before[1] + in_letter)


def box_cxcywh_to_xyxy(x):
    """Boxes by their centres and sizes to their corners."""
    centre, size = x.split(2, -1)
    return torch.cat([centre - 0.5 * size, centre + 0.5 * size], -1)


def generalized_box_iou(boxes1, boxes2):
    """(N, 4) and (M, 4) in corners to (N, M)."""
    low, high = torch.max(boxes1[:, None, :2], boxes2[:, :2]), torch.min(boxes1[:, None, 2:], boxes2[:, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    sizes = [(boxes[:, 2:] - boxes[:, :2]).prod(-1) for boxes in (boxes1, boxes2)]
    union = sizes[0][:, None] + sizes[1] - shared
    low, high = torch.min(boxes1[:, None, :2], boxes2[:, :2]), torch.max(boxes1[:, None, 2:], boxes2[:, 2:])
    hull = (high - low).prod(-1)
    return shared / union - (hull - union) / hull


def fim_permute(text, rng):
    """Prefix, suffix and middle of a text (a list of words), each behind its mark."""
    first, last = sorted(rng.sample(range(len(text) + 1), 2))
    return [FIM_PREFIX, *text[:first], FIM_SUFFIX, *text[last:], FIM_MIDDLE, *text[first:last]]


def length_penalty(length, alpha=0.6):
    """((5 + length) / 6) ** alpha."""
    return ((5 + length) / 6) ** alpha


def repetition_penalty(logits, ids, penalty):
    """Written words: positive logits are divided, negative ones multiplied."""
    seen = logits.gather(-1, ids)
    return logits.scatter(-1, ids, torch.where(seen > 0, seen / penalty, seen * penalty))


def top_p_filter(logits, p):
    """The smallest set of best words that reaches p."""
    best = logits.sort(descending=True)
    probs = best.values.softmax(-1)
    drop = probs.cumsum(-1) - probs >= p
    return logits.masked_fill(drop.scatter(-1, best.indices, drop), -math.inf)


def left_pad(history, maxlen):
    """The last items, padded with 0 on the left."""
    history = history[-maxlen:]
    return [0] * (maxlen - len(history)) + history


def sample_negatives(seen, n_items, size, rng):
    """Items from 1 to n_items that were not seen."""
    found: list[int] = []
    while len(found) < size:
        item = int(rng.integers(1, n_items + 1))
        if item not in seen:
            found.append(item)
    return found


def make_example(items, maxlen):
    """A history and its labels."""
    return torch.tensor(left_pad(items[:-1], maxlen)), torch.tensor(left_pad(items[1:], maxlen))


def listwise_loss(scores, relevance):
    """The cross-entropy of a query's candidates with their relevance, a mean over the queries."""
    wanted = relevance / relevance.sum(-1, keepdim=True)
    return -(wanted * scores.log_softmax(-1)).sum(-1).mean()


def lambda_rank_loss(scores, relevance, present):
    """Pairs in the wrong order, each by what exchanging its two candidates would change."""
    places = scores.argsort(-1, descending=True).argsort(-1)
    discount = 1 / torch.log2(places + 2.0)
    better = (relevance[:, :, None] > relevance[:, None]) & present[:, :, None] & present[:, None]
    weight = (discount[:, :, None] - discount[:, None]).abs() * (relevance[:, :, None] - relevance[:, None]).abs()
    return (F.softplus(scores[:, None] - scores[:, :, None]) * weight * better).sum() / better.sum()


def list_net_loss(scores, relevance, present):
    """The cross-entropy of the candidates that there are with the softmax of their relevance."""
    low = torch.finfo(scores.dtype).min
    wanted = relevance.masked_fill(~present, low).softmax(-1)
    likely = scores.masked_fill(~present, low).log_softmax(-1)
    return -(wanted * likely).sum(-1).mean()


def triplet_loss(anchor, positive, negative, margin=0.2):
    """Anchors are nearer to their positives than to their negatives."""
    return F.relu(F.pairwise_distance(anchor, positive) - F.pairwise_distance(anchor, negative) + margin).mean()


def focal_loss(logits, target, gamma=2.0):
    """The cross-entropy, of sure answers less."""
    each = F.cross_entropy(logits, target, reduction="none")
    return ((1 - (-each).exp()) ** gamma * each).mean()


def set_loss(logits, boxes, targets, n_classes=5):
    """The nearest pairs of a query and an object are matched; all other queries are of no class."""
    wanted = torch.full(logits.shape[:2], n_classes)
    far = logits.new_zeros(())
    for row, target in enumerate(targets):
        apart = torch.cdist(boxes[row], target["boxes"], p=1)
        for _ in range(len(target["labels"])):
            query, at = divmod(int(apart.argmin()), len(target["labels"]))
            far = far + apart[query, at]
            apart[query], apart[:, at] = float("inf"), float("inf")
            wanted[row, query] = target["labels"][at]
    weight = torch.ones(n_classes + 1)
    weight[n_classes] = 0.1
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), weight) + far


def distillation_loss(student_logits, teacher_logits, keep, temperature=2.0):
    """The divergence of the softened student from the softened teacher, a mean over what is kept."""
    taught = F.softmax(teacher_logits / temperature, dim=-1)
    each = F.kl_div(F.log_softmax(student_logits / temperature, dim=-1), taught, reduction="none").sum(-1)
    return temperature**2 * (each * keep).sum() / keep.sum()


def rms_norm(x, weight, eps=1e-6):
    """Each token by its root mean square."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def resize_positions(positions, grid):
    """(N, d) of a square grid, to a square grid of another side."""
    side = math.isqrt(len(positions))
    image = positions.reshape(1, side, side, -1).permute(0, 3, 1, 2)
    image = F.interpolate(image, size=(grid, grid), mode="bicubic", align_corners=False)
    return image.permute(0, 2, 3, 1).reshape(grid * grid, -1)


class EarlyStopping:
    """Says when the score was not better `patience` times in a row, and keeps the weights with the best one."""

    def __init__(self, patience=3, min_delta=0.0):
        self.patience, self.min_delta = patience, min_delta
        self.best, self.bad, self.state = math.inf, 0, None

    def step(self, val_loss, model):
        if val_loss < self.best - self.min_delta:
            self.best, self.bad = val_loss, 0
            self.state = {name: value.detach().clone() for name, value in model.state_dict().items()}
        else:
            self.bad += 1
        return self.bad >= self.patience


def spec_augment(frames, lengths, width=4):
    """A copy of the frames (B, T, mels), of each of which a random stretch of time is zero."""
    out = frames.clone()
    for row, n in enumerate(lengths.tolist()):
        start = int(torch.randint(0, n - width + 1, ()))
        out[row, start : start + width] = 0.0
    return out


def leave_one_out(events):
    """(user, item) in the order of time to the items by user: all but the last two, the last but one, the last."""
    items: dict[int, list[int]] = {}
    for user, item in events:
        items.setdefault(user, []).append(item)
    train = {user: one[:-2] for user, one in items.items()}
    valid = {user: one[-2:-1] for user, one in items.items()}
    test = {user: one[-1:] for user, one in items.items()}
    return train, valid, test


def corrupt_spans(tokens, first_sentinel, rng, hidden=3, kept=4):
    """Spans of the text are hidden behind sentinels in the inputs; the targets give each behind its sentinel."""
    inputs, targets, at, sentinel = [], [], 0, first_sentinel
    while at < len(tokens):
        start = at + rng.randint(1, 2 * kept)
        end = start + rng.randint(1, 2 * hidden)
        inputs += tokens[at:start]
        if start < len(tokens):
            inputs.append(sentinel)
            targets += [sentinel, *tokens[start:end]]
            sentinel -= 1
        at = end
    return inputs, targets


class WordTokenizer:
    """Texts to ids (B, T): a start, the words, an end, and padding on the right."""

    START, END, UNKNOWN = 7, 8, 9

    def __init__(self, words, max_length=16):
        self.ids = {word: 10 + at for at, word in enumerate(sorted(set(words)))}
        self.max_length = max_length

    def __call__(self, texts):
        rows = torch.full((len(texts), self.max_length), PAD)
        for row, text in enumerate(texts):
            ids = [self.ids.get(word, self.UNKNOWN) for word in text.split()]
            ids = [self.START, *ids[: self.max_length - 2], self.END]
            rows[row, : len(ids)] = torch.tensor(ids)
        return rows


def banned_ngram_tokens(generated, ngram_size):
    """The words that would repeat ngram_size words of the list."""
    last = tuple(generated[len(generated) - ngram_size + 1 :])
    grams = zip(*(generated[at:] for at in range(ngram_size)), strict=False)
    return {gram[-1] for gram in grams if gram[:-1] == last}


def min_p_filter(logits, min_p):
    """Words far less likely than the best are removed."""
    probs = logits.softmax(-1)
    return logits.masked_fill(probs < min_p * probs.amax(-1, keepdim=True), float("-inf"))


def alibi_slopes(n_heads):
    """(n_heads,) of a power of 2."""
    start = 2.0 ** (-8.0 / n_heads)
    return torch.tensor([start ** (head + 1) for head in range(n_heads)])


def build_example(prompt, response, max_len):
    """The ids of both, and labels for the response."""
    answer = response[:max_len]
    prompt = prompt[max(0, len(prompt) - (max_len - len(answer))) :]
    return {"input_ids": prompt + answer, "labels": [-100] * len(prompt) + answer}


def masked_softmax(scores, valid_lens):
    """Of scores (B, Tq, Tk), the first valid_lens (B,) keys of each row are seen."""
    seen = torch.arange(scores.shape[-1]) < valid_lens[:, None, None]
    return scores.masked_fill(~seen, float("-inf")).softmax(-1)
