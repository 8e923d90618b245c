"""What is said of an NVIDIA card that torch can't use: the cause, and what would help."""

import os

import pytest

from kvviz.device import nvidia_card
from kvviz.device.nvidia_card import Card, seen_card, why_unused

OLD, NEW = Card("NVIDIA GeForce RTX 3060", "535.104.05"), Card("NVIDIA H100 80GB HBM3", "580.159.04")


@pytest.mark.parametrize(
    ("card", "built_for", "environ", "said"),
    [
        (OLD, "13.0", {}, ["driver 535.104.05 is too old", "CUDA 13.0", "580 or later", "/whl/cu126"]),
        (Card("NVIDIA GeForce GT 710", "390.1"), "13.0", {}, ["driver 390.1 is too old", "580 or later."]),
        (OLD, None, {}, ["built for processors alone", "/whl/cu126"]),
        (NEW, None, {}, ["built for processors alone", "/whl/cu130"]),
        (NEW, "13.0", {"CUDA_VISIBLE_DEVICES": ""}, ["CUDA_VISIBLE_DEVICES hides"]),
        (NEW, "13.0", {}, ["can't start the card with driver 580.159.04"]),
        (Card(), "13.0", {}, ["an NVIDIA card", "--gpus all"]),
    ],
)
def test_the_cause_and_the_way_out(card, built_for, environ, said):
    sentence = why_unused(card, built_for, environ)
    assert sentence.startswith("This machine has an ") and "computes on the processor" in sentence
    assert all(part in sentence for part in (*said, card.name)), sentence


def answering(folder, script, monkeypatch):
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_the_card_is_asked_of_its_driver(tmp_path, monkeypatch):
    answering(tmp_path, "echo 'NVIDIA GeForce RTX 3060, 535.104.05'; echo 'NVIDIA T4, 535.104.05'", monkeypatch)
    assert seen_card(tmp_path) == OLD


def test_without_an_answer_the_drivers_files_tell(tmp_path, monkeypatch):
    answering(tmp_path, "echo 'has failed' >&2; exit 9", monkeypatch)
    assert seen_card(tmp_path) is None
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text("NVRM version: ...")
    assert seen_card(tmp_path) == Card()


def test_each_version_has_an_index():
    assert nvidia_card.INDEX.keys() == nvidia_card.LEAST_DRIVER.keys()
