"""How does a person ask for it at a terminal?

Parsing only: every verb calls one public function. An error that a user can cause is one line on
stderr and exit code 1; wrong arguments are exit code 2, Ctrl-C is 130.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from rich.console import Console

from untrained import __version__
from untrained.errors import UntrainedError

PRESET_NAMES = ("demo", "quick")

_MAIN = """\
networks whose weights are never trained

examples:
  untrained find -o sotu.ticket                  find a language model in random weights
  untrained show sotu.ticket                     what the ticket holds, in bytes
  untrained verify sotu.ticket                   rebuild it and compare every checksum
  untrained generate sotu.ticket -p "We the "    let it write
  untrained export sotu.ticket gpt2-folder       a plain Hugging Face model
"""

_FIND = """\
Draw a model from a seed, search masks by edge-popup, write the ticket, verify it in a fresh
process, and measure every control at the same budget.

examples:
  untrained find --preset quick -o quick.ticket
      a tiny model, under a minute
  untrained find --preset demo -o sotu.ticket
      the main job, a few minutes on two cores
  untrained find --recipe "all = masked(keep=0.3, init=signed_constant);
      norm = frozen(init=ones); bias = frozen(init=zeros)" -o keep30.ticket
      another recipe; a preset's name will do, too (supermask, frozen_qk, ...)
  untrained find --data letters/ --tokenizer bpe:1024 -o letters.ticket
      your own text: a .txt or .parquet file, or a folder of them
  untrained find --dense-lr 2e-3,4e-3,8e-3,16e-3 -o sotu.ticket
      give the dense control a grid of learning rates; the best on validation counts

Killed or stopped? The same command goes on from the last checkpoint and ends with the same mask.
Beside the ticket lies a folder TICKET.run with results.json, curves.png and the checkpoints.
"""

_SHOW = """\
examples:
  untrained show sotu.ticket
"""

_VERIFY = """\
Rebuild every tensor from the seed and the masks, and compare its checksum with the ticket's.

examples:
  untrained verify sotu.ticket
  untrained verify sotu.ticket --logits sotu.ticket.run/probe.safetensors
      compare logits bit for bit, too (same build of torch, same number of threads)
"""

_GENERATE = """\
examples:
  untrained generate sotu.ticket
  untrained generate sotu.ticket -p "The state of the union is " --tokens 400 --seed 7
  untrained generate sotu.ticket --temperature 0       always the most likely token
"""

_EXPORT = """\
Write a plain Hugging Face folder; AutoModelForCausalLM.from_pretrained(FOLDER) gives the same
logits, and AutoTokenizer.from_pretrained(FOLDER) the same tokens.

examples:
  untrained export sotu.ticket gpt2-folder
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if getattr(options, "no_controls", False) and (options.dense_lrs or options.embeddings_lrs):
        parser.error("--no-controls leaves --dense-lr and --embeddings-lr without effect")
    try:
        code: int = options.run(options)
        sys.stdout.flush()
        return code
    except UntrainedError as error:
        print(f"untrained: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        resumes = "; the same command goes on from here" if options.run is _find else ""
        print(f"untrained: stopped{resumes}", file=sys.stderr)
        return 130
    except OSError as error:
        # The reader of our output has gone, or its disk is full; let the last flush go nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"untrained: cannot write: {error.strerror or error}", file=sys.stderr)
        return 1
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate memory" not in str(error):
            raise
        print("untrained: out of memory; take a smaller model, batch or length", file=sys.stderr)
        return 1


def _find(options: argparse.Namespace) -> int:
    from untrained.find import RUN, find
    from untrained.plots import plot_find
    from untrained.progress import Screen

    output: Path = options.output
    folder = Path(f"{output}{RUN}")
    results = find(_settings(options), output, fresh=options.fresh, screen=Screen(Console()))
    plot_find(results, folder / "curves.png")
    print(f"\nticket  {output}\ncurves  {folder / 'curves.png'}\nnumbers {folder / 'results.json'}")
    return 0


def _settings(options: argparse.Namespace) -> Any:
    """The preset's settings, with what the command line says in their place."""
    from untrained.presets import PRESETS

    settings = PRESETS[options.preset]
    given = {name: value for name, value in vars(options).items() if value is not None}
    names = ["recipe", "model", "data", "tokenizer", "length", "seed", "tokens", "prompt"]
    names += ["dense_lrs", "embeddings_lrs"]
    budget = ["steps", "batch", "lr", "scores_lr", "seed"]
    training = {name: given[name] for name in budget if name in given}
    return replace(
        settings,
        **{name: given[name] for name in names if name in given},
        controls=settings.controls and not options.no_controls,
        training=replace(settings.training, **training),
    )


def _show(options: argparse.Namespace) -> int:
    from untrained.ticket import Ticket

    print(Ticket.load(options.ticket))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from untrained.ticket import Ticket

    print(Ticket.load(options.ticket).verify(logits=options.logits))
    return 0


def _generate(options: argparse.Namespace) -> int:
    from untrained.generate import generate
    from untrained.ticket import Ticket

    ticket = Ticket.load(options.ticket)
    text = generate(
        ticket.model(),
        ticket.read_tokenizer(),
        options.prompt,
        tokens=options.tokens,
        temperature=options.temperature,
        top_k=options.top_k,
        seed=options.seed,
    )
    print(text)
    return 0


def _export(options: argparse.Namespace) -> int:
    from untrained.export import export
    from untrained.ticket import Ticket

    export(Ticket.load(options.ticket), options.folder)
    print(f"{options.folder}: load it with AutoModelForCausalLM.from_pretrained")
    return 0


# --- the parser ---------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """Help that keeps the lines of its examples, and errors that say where help is."""

    def __init__(self, **settings: Any) -> None:
        settings["formatter_class"] = argparse.RawDescriptionHelpFormatter
        settings["allow_abbrev"] = False
        super().__init__(**settings)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\nSee {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="untrained", description=_MAIN)
    parser.add_argument("--version", action="version", version=f"untrained {__version__}")
    verbs = parser.add_subparsers(metavar="VERB", required=True, parser_class=_Parser)
    _add_find(verbs)
    show = _verb(verbs, "show", _show, "say what a ticket holds", _SHOW)
    verify = _verb(verbs, "verify", _verify, "rebuild a ticket and compare checksums", _VERIFY)
    generate = _verb(verbs, "generate", _generate, "let a ticket write", _GENERATE)
    export = _verb(verbs, "export", _export, "write a plain Hugging Face folder", _EXPORT)
    for verb in (show, verify, generate, export):
        verb.add_argument("ticket", type=Path, metavar="TICKET", help="a ticket file")
    verify.add_argument("--logits", type=Path, metavar="FILE", help="a probe to compare with, too")
    export.add_argument("folder", type=Path, metavar="FOLDER", help="a new or empty folder")
    generate.add_argument("-p", "--prompt", default="", help="what to go on from")
    generate.add_argument(
        "--tokens", type=int, default=200, metavar="N", help="tokens to add (200)"
    )
    generate.add_argument(
        "--temperature", type=float, default=0.8, metavar="X", help="0 is greedy (0.8)"
    )
    generate.add_argument("--top-k", type=int, metavar="K", help="sample among the K likeliest")
    generate.add_argument("--seed", type=int, default=0, metavar="S", help="of the samples (0)")
    return parser


def _verb(verbs: Any, name: str, run: Any, summary: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(
        name, help=summary, description=f"{summary[:1].upper()}{summary[1:]}.\n\n{text}"
    )
    parser.set_defaults(run=run)
    return parser


def _add_find(verbs: Any) -> None:
    parser = _verb(verbs, "find", _find, "find a ticket, beside its controls", _FIND)
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="TICKET", help="the ticket to write"
    )
    parser.add_argument(
        "--preset", choices=PRESET_NAMES, default="demo", help="all settings at once (demo)"
    )
    parser.add_argument(
        "--quick", dest="preset", action="store_const", const="quick", help="--preset quick"
    )
    parser.add_argument("--fresh", action="store_true", help="delete TICKET.run and start over")
    what = parser.add_argument_group("what is searched")
    what.add_argument("--recipe", metavar="TEXT", help="a recipe, or a preset's name")
    what.add_argument("--model", metavar="NAME", help="gpt2-nano, 3x192x6 or config.json")
    what.add_argument("--data", metavar="SOURCE", help="sotu, or the path of texts")
    what.add_argument("--tokenizer", metavar="NAME", help="byte, or bpe:SIZE")
    what.add_argument("--length", type=int, metavar="T", help="tokens per sequence")
    what.add_argument("--seed", type=int, metavar="S", help="of every random value and batch")
    how = parser.add_argument_group("how long and how fast")
    how.add_argument("--steps", type=int, metavar="N", help="optimiser steps, in every arm")
    how.add_argument("--batch", type=int, metavar="B", help="sequences per step")
    how.add_argument("--lr", type=float, metavar="X", help="of tensors trained beside the masks")
    how.add_argument("--scores-lr", type=float, metavar="X", help="of scores")
    against = parser.add_argument_group("against what")
    against.add_argument("--no-controls", action="store_true", help="measure no control")
    for name in ("dense", "embeddings"):
        against.add_argument(
            f"--{name}-lr",
            dest=f"{name}_lrs",
            type=_numbers,
            metavar="X,X,...",
            help=f"of the {name} control; the best of several on validation counts",
        )
    against.add_argument("--tokens", type=int, metavar="N", help="evaluated per split; 0 is all")
    parser.add_argument("--prompt", metavar="TEXT", help="what the sample goes on from")


def _numbers(text: str) -> tuple[float, ...]:
    """Comma-separated numbers, for argparse."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not numbers like 2e-3,4e-3") from None
