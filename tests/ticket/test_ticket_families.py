"""A ticket of every family gives its model again, elsewhere, and to transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from families import FAMILIES, Family, batch, logits
from tickets import lying
from untrained.apply import apply
from untrained.errors import TicketError
from untrained.export import export
from untrained.ticket import Ticket
from untrained.ticket.architecture import Architecture

EVERY = [pytest.param(family, id=name) for name, family in FAMILIES.items()]
RULES = "all = masked(keep=0.4, init=signed_constant); norm = trained; bias = frozen"

ELSEWHERE = """
import sys
from pathlib import Path
from untrained import Ticket
for path in sorted(Path(sys.argv[1]).glob("*.ticket")):
    ticket = Ticket.load(path)
    print(path.stem, ticket.verify(logits=path.with_suffix(".probe")))
"""


def ticket_of(family: Family) -> tuple[Any, Ticket]:
    """A model under a recipe, after a few steps, and its ticket."""
    applied = apply(family.model(), RULES, seed=7)
    optimizer = applied.optimizer(lr=0.01)
    for _ in range(3):
        applied.model(**batch(applied.model)).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return applied.model, Ticket.of(applied)


def test_a_fresh_process_gives_the_same_logits_for_every_family(tmp_path: Path) -> None:
    for name, family in FAMILIES.items():
        model, ticket = ticket_of(family)
        ticket.save(tmp_path / f"{name}.ticket")
        Ticket.write_probe(model, tmp_path / f"{name}.probe", input_ids=batch(model)["input_ids"])
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert {line.split()[0] for line in said} == set(FAMILIES)
    assert all("every checksum matches; logits" in line for line in said)


@pytest.mark.parametrize("family", EVERY)
def test_a_ticket_gives_the_model_of_its_class(family: Family) -> None:
    model, ticket = ticket_of(family)
    rebuilt = ticket.model()
    assert type(rebuilt) is type(model)
    assert torch.equal(logits(rebuilt), logits(model))
    for name, parameter in model.named_parameters(remove_duplicate=False):
        assert torch.equal(parameter, rebuilt.get_parameter(name)), name


@pytest.mark.parametrize("family", EVERY)
def test_a_ticket_reads_its_text_again(family: Family, tmp_path: Path) -> None:
    _, ticket = ticket_of(family)
    ticket.save(tmp_path / "a.ticket")
    loaded = Ticket.load(tmp_path / "a.ticket")
    assert loaded.architecture == ticket.architecture
    assert str(loaded) == str(ticket)
    if family.layout != "marian":  # no counts for what the model computes
        assert loaded.weights == family.weights


@pytest.mark.parametrize("family", EVERY)
def test_transformers_alone_reads_the_export(family: Family, tmp_path: Path) -> None:
    model, ticket = ticket_of(family)
    export(ticket, tmp_path / "plain")
    plain, told = type(model).from_pretrained(tmp_path / "plain", output_loading_info=True)
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    assert torch.equal(logits(plain), logits(model))


@pytest.mark.parametrize("family", EVERY)
def test_a_rebuilt_model_generates_or_encodes_as_the_model(family: Family) -> None:
    model, ticket = ticket_of(family)
    rebuilt: Any = ticket.model()
    tokens = batch(model)["input_ids"]
    if family.layout != "bert" and hasattr(model, "generate") and model.can_generate():
        texts = [
            m.eval().generate(tokens, max_new_tokens=6, do_sample=False) for m in (model, rebuilt)
        ]
        assert torch.equal(*texts)
        assert texts[0].shape[1] > 1
    else:
        one, other = (
            m.eval()(tokens, output_hidden_states=True).hidden_states[-1] for m in (model, rebuilt)
        )
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["llama", "bert", "roberta", "marian", "marian-two"])
def test_a_probe_makes_up_tokens_that_the_model_takes(name: str, tmp_path: Path) -> None:
    model, ticket = ticket_of(FAMILIES[name])
    Ticket.write_probe(model, tmp_path / "a.probe")
    assert "bit-identical" in str(ticket.verify(logits=tmp_path / "a.probe"))


@pytest.mark.parametrize("name", ["llama-tied", "bert", "marian"])
def test_a_rebuilt_model_is_tied(name: str) -> None:
    model: Any = ticket_of(FAMILIES[name])[1].model()
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


@pytest.mark.parametrize("name", ["llama", "bert", "marian"])
def test_a_model_in_bfloat16_comes_back_in_bfloat16(name: str) -> None:
    applied = apply(FAMILIES[name].model().to(torch.bfloat16), RULES)
    rebuilt = Ticket.of(applied).model()
    assert {p.dtype for p in rebuilt.parameters()} == {torch.bfloat16}
    assert torch.equal(logits(rebuilt), logits(applied.model))


# --- positions that the model computes ---


def test_positions_take_no_room_in_the_file() -> None:
    _, ticket = ticket_of(FAMILIES["marian"])
    held = {section.name for section in ticket.sections()}
    assert not any("position" in name for name in held)
    assert "encoder.position" in ticket.checksums


def test_positions_that_somebody_changed_are_no_ticket() -> None:
    applied = apply(FAMILIES["marian"].model(), RULES)
    with torch.no_grad():
        applied.model.model.encoder.embed_positions.weight[3] += 1
    with pytest.raises(TicketError, match=r"encoder.position was computed with checksum"):
        Ticket.of(applied)


def test_positions_of_another_sort_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.ticket"
    ticket_of(FAMILIES["marian"])[1].save(path)

    def lie(header: dict[str, Any]) -> None:
        entry = next(e for e in header["tensors"] if e["role"] == "decoder.position")
        entry["sha256"] = "0" * 64

    path.write_bytes(lying(path.read_bytes(), lie))
    with pytest.raises(TicketError, match=r"decoder.position .* another version of numpy"):
        Ticket.load(path).verify()


# --- files that lie ---


def config(name: str, **lies: Any) -> Architecture:
    """The architecture of a family with other words in its configuration."""
    honest = Architecture.of(FAMILIES[name].model())
    return Architecture(honest.library, honest.name, {**honest.config, **lies})


@pytest.mark.parametrize(
    ("name", "lies", "words"),
    [
        ("llama", {"rope_parameters": {"rope_type": "evil"}}, "rope_parameters is"),
        ("llama", {"rope_parameters": {"file": "/etc/passwd"}}, "rope_parameters is"),
        ("llama", {"rope_parameters": {"rope_theta": float("nan")}}, "rope_parameters is"),
        ("llama", {"pretraining_tp": 4}, "pretraining_tp is 4"),
        ("llama", {"hidden_act": "xielu"}, "hidden_act is 'xielu'"),
        ("llama", {"num_hidden_layers": 10**6}, "num_hidden_layers is 1000000"),
        ("llama", {"auto_map": {}}, "the configuration holds 'auto_map'"),
        ("qwen2", {"layer_types": ["evil"]}, "layer_types is"),
        ("qwen2", {"layer_types": ["full_attention"] * 2000}, "layer_types is"),
        ("bert", {"is_decoder": "yes"}, "is_decoder is 'yes'"),
        ("marian", {"max_position_embeddings": 2**30}, "asks for too much"),
        ("marian", {"encoder_layers": True}, "encoder_layers is True"),
    ],
    ids=str,
)
def test_a_configuration_outside_the_limits_is_refused(
    name: str, lies: dict[str, Any], words: str
) -> None:
    with pytest.raises(TicketError, match=words):
        config(name, **lies)


@pytest.mark.parametrize(
    ("name", "lies"),
    [
        ("llama", {"num_hidden_layers": 1000}),
        ("bert", {"num_hidden_layers": 1000}),
        ("marian", {"decoder_layers": 1000}),
    ],
)
def test_layers_that_the_file_does_not_list_are_never_made(name: str, lies: dict[str, Any]) -> None:
    with pytest.raises(TicketError, match="but the ticket lists only 60 tensors"):
        config(name, **lies).outline(tensors=60, max_weights=2**31)


@pytest.mark.parametrize(
    ("name", "lies"),
    [
        ("llama", {"vocab_size": 2**31 - 1}),
        ("llama", {"head_dim": 2**24}),
        ("bert", {"max_position_embeddings": 2**31 - 1}),
        ("marian", {"vocab_size": 2**31 - 1}),
    ],
)
def test_a_model_too_large_is_refused_before_it_has_memory(name: str, lies: dict[str, Any]) -> None:
    with pytest.raises(TicketError, match="more than max_weights"):
        config(name, **lies).outline(tensors=10**4, max_weights=2**25)


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0},
        {
            "rope_type": "yarn",
            "rope_theta": 1e4,
            "factor": 4.0,
            "original_max_position_embeddings": 16,
        },
        {
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    ],
    ids=lambda rope: rope["rope_type"],
)
def test_rotations_come_back(rope: dict[str, Any]) -> None:
    model = FAMILIES["llama"].model(rope_parameters=rope)
    rebuilt = Ticket.of(apply(model, RULES)).model()
    assert torch.equal(logits(rebuilt), logits(model))


def test_rotations_that_follow_the_text_are_refused() -> None:
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    with pytest.raises(TicketError, match="rope_parameters is"):
        Ticket.of(apply(FAMILIES["llama"].model(rope_parameters=rope), RULES))


def test_the_header_is_json_without_numbers_that_json_lacks() -> None:
    for family in FAMILIES.values():
        held = Architecture.of(family.model()).as_json()
        assert json.loads(json.dumps(held, allow_nan=False)) == held
