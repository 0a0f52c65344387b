"""The tiny random model and the vLLM processes that serve it on loopback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["COMMON_FLAGS", "Engine", "write_model"]

_WORDS = 2048
_READY_SECONDS = 180
_FIXED_FLAGS = (
    "--served-model-name tiny --load-format dummy --dtype bfloat16 --enforce-eager --block-size 32 "
    "--gpu-memory-utilization 0.1 --host 127.0.0.1"
)
COMMON_FLAGS = (
    "--max-num-batched-tokens 2048 --enable-prompt-tokens-details "
    "--no-scheduler-reserve-full-isl --long-prefill-token-threshold 512"
)


def write_model(folder: Path) -> None:
    """A two-layer Llama without weights and a tokenizer in which N words are N tokens."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {"<unk>": 0, "<s>": 1, "</s>": 2}
    vocabulary |= {f"w{number:04d}": number + 3 for number in range(_WORDS - 3)}
    files: dict[str, object] = {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 32,
            "vocab_size": _WORDS,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "torch_dtype": "bfloat16",
        },
        "tokenizer.json": {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [_special(word, number) for word, number in list(vocabulary.items())[:3]],
            "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "post_processor": None,
            "decoder": None,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<s>",
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "model_max_length": 131072,
            "chat_template": "{% for message in messages %}{{ message['content'] }} {% endfor %}",
        },
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))


def _special(word: str, number: int) -> dict[str, object]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": word, **flags}


@dataclass(slots=True)
class Engine:
    """One server, pinned to ``core``, its output appended to ``log``."""

    vllm: Path
    model: Path
    flags: str
    port: int
    core: int
    log: Path
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        """Start the server; ``ready`` tells when it serves."""
        command = ["taskset", "-c", str(self.core), str(self.vllm), "serve", str(self.model)]
        command += [*_FIXED_FLAGS.split(), "--port", str(self.port), *self.flags.split()]
        environment = os.environ | {
            "HF_HUB_OFFLINE": "1",
            "VLLM_HOST_IP": "127.0.0.1",
            "GLOO_SOCKET_IFNAME": "lo",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "OMP_NUM_THREADS": "1",
            # One access-log line each is enough; colours would end up in the bundle.
            "NO_COLOR": "1",
        }
        # A session of its own: a kill must reach the engine core too, and nothing else.
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )

    def ready(self) -> None:
        """Wait until ``/health`` answers; raise ``RuntimeError`` when the server ends or takes too long."""
        end = time.monotonic() + _READY_SECONDS
        while time.monotonic() < end:
            if self.process is None or self.process.poll() is not None:
                raise RuntimeError(f"vLLM ended while starting; read {self.log}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2):
                    return
            except OSError:
                time.sleep(1)
        raise RuntimeError(f"vLLM was not ready after {_READY_SECONDS} s; read {self.log}")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the server and its engine core, by the process group this object started."""
        if self.process is None:
            return
        group = self.process.pid
        _signal_group(group, how)
        try:
            self.process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            _signal_group(group, signal.SIGKILL)
            self.process.wait(timeout=15)
        _signal_group(group, signal.SIGKILL)
        self.process = None


def _signal_group(group: int, how: signal.Signals) -> None:
    try:
        os.killpg(group, how)
    except ProcessLookupError:
        return
