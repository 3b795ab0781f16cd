"""Search a mask in a module of your own, and compare it with a random one."""

import torch
from torch import nn

import untrained as ut
from untrained.search.controls import random_mask

torch.manual_seed(0)
x = torch.randn(512, 8)
y = (x[:, 0] * x[:, 1] > 0).long()

model = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 2))
applied = ut.apply(model, "0,2 = masked(keep=0.5, init=signed_constant)", seed=0)
optimizer = applied.optimizer(torch.optim.Adam, lr=0.02)
for _ in range(200):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()

accuracy = (model(x).argmax(1) == y).float().mean()
with random_mask(applied, seed=1):
    control = (model(x).argmax(1) == y).float().mean()
print(f"found mask {accuracy:.0%}, random mask {control:.0%}")
