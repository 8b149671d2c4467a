# pip leaves llama.cpp's programs and libraries in the package's bin/ without the links that they need, and lists them.
import json, os, pathlib, sys

target = pathlib.Path(sys.argv[1]) / "bin"
found = [p for p in pathlib.Path(sys.prefix).glob("lib/python*/site-packages/*/bin/_symlinks.json")]
if len(found) != 1:
    sys.exit(f"found {len(found)} lists of links, expected one")
source = found[0].parent
for link, to in json.loads(found[0].read_text()).items():
    if not (source / link).exists():
        os.symlink(to, source / link)
os.symlink(source, target)
server = source / "llama-server"
server.chmod(server.stat().st_mode | 0o111)
