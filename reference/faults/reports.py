"""Where a public report is found: "triton#8322" as a link. Adding a repository is one entry of ``OWNERS``."""

from __future__ import annotations

#: a repository as reports name it -> who owns it
OWNERS: dict[str, str] = {
    "DeepGEMM": "deepseek-ai",
    "DeepSeek-V3": "deepseek-ai",
    "FlagGems": "flagos-ai",
    "GPTQModel": "ModelCloud",
    "LMCache": "LMCache",
    "Model-Optimizer": "NVIDIA",
    "SageAttention": "thu-ml",
    "TensorRT-LLM": "NVIDIA",
    "TransformerEngine": "NVIDIA",
    "aiter": "ROCm",
    "ao": "pytorch",
    "b12x": "local-inference-lab",
    "composable_kernel": "ROCm",
    "cutlass": "NVIDIA",
    "executorch": "pytorch",
    "flash-attention": "Dao-AILab",
    "flashinfer": "flashinfer-ai",
    "gfloat": "graphcore-research",
    "imp": "kekzl",
    "intel-xpu-backend-for-triton": "intel",
    "jax": "jax-ml",
    "kernels-community": "huggingface",
    "llama.cpp": "ggml-org",
    "microxcaling": "microsoft",
    "ml_dtypes": "jax-ml",
    "mlx": "ml-explore",
    "modular": "modular",
    "ocannl": "ahrefs",
    "onnx": "onnx",
    "onnxruntime": "microsoft",
    "openvino": "openvinotoolkit",
    "pytorch": "pytorch",
    "rocm-libraries": "ROCm",
    "rocm-systems": "ROCm",
    "sglang": "sgl-project",
    "slime": "THUDM",
    "tilelang": "tile-ai",
    "tokenspeed": "lightseekorg",
    "transformers": "huggingface",
    "triton": "triton-lang",
    "tt-metal": "tenstorrent",
    "uccl": "uccl-project",
    "vllm": "vllm-project",
    "xla": "openxla",
}


def link_of(report: str) -> str:
    """The address of a report, or "" for one that names no issue, or a repository whose owner we do not know.

    GitHub leads from the number of an issue to a pull request where it is one.
    """
    repository, _, number = report.partition("#")
    owner, _, name = repository.rpartition("/")
    owner = owner or OWNERS.get(name, "")
    return f"https://github.com/{owner}/{name}/issues/{number}" if owner and number.isdigit() else ""
