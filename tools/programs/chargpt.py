"""Train minGPT on characters, by its own trainer and data set (its root and `projects/chargpt` on the path), for
`tools.standin`."""

from chargpt import CharDataset, get_config
from mingpt.model import GPT
from mingpt.trainer import Trainer

config = get_config()
config.data.block_size = 8
train = CharDataset(config.data, "a text of few letters, again and again: " * 12)
config.model.model_type, config.model.n_layer, config.model.n_head, config.model.n_embd = None, 2, 2, 16
config.model.vocab_size, config.model.block_size = train.get_vocab_size(), train.get_block_size()
config.trainer.max_iters, config.trainer.batch_size, config.trainer.num_workers = 12, 16, 0
trainer = Trainer(config.trainer, GPT(config.model), train)
trainer.add_callback("on_batch_end", lambda t: print(f"step {t.iter_num}: loss {t.loss.item():.5f}"))
trainer.run()
