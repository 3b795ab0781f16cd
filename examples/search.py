"""Find a language model in random weights, by hand."""

import torch
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

import untrained as ut

config = GPT2Config(vocab_size=256, n_positions=32, n_layer=1, n_embd=64, n_head=2)
applied = ut.apply(GPT2LMHeadModel(config), "supermask", seed=0)
print(applied)

task = ut.tasks.text("sotu", length=32)
optimizer = applied.optimizer(torch.optim.AdamW, lr=1e-2)
for step in range(30):
    inputs, targets = task.batch(step, size=16, seed=0)
    logits = applied.model(input_ids=inputs).logits
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.2f}, no weight was trained")
