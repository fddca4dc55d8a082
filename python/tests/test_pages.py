"""Every example of docs/python.md, and of the package's README, runs as it stands there."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

REPOSITORY = pathlib.Path(os.environ.get("STRATAKV_REPOSITORY", pathlib.Path(__file__).parents[2]))
PAGES = ["docs/python.md", "python/README.md"]


def examples():
    for page in PAGES:
        text = (REPOSITORY / page).read_text()
        for at, found in enumerate(re.finditer(r"^```python\n(.*?)^```", text, re.M | re.S)):
            yield pytest.param(found[1], id=f"{page}:{at}")


@pytest.mark.parametrize("example", list(examples()))
def test_an_example_runs(example, tmp_path):
    ended = subprocess.run([sys.executable, "-W", "error", "-c", example], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_there_are_examples():
    assert len(list(examples())) >= 9
