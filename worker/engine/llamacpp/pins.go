package llamacpp

// version is what llama_version of the pinned library starts with. Structs of llama.cpp go by value and change between
// versions without any other sign, so nothing else is loaded.
const version = "0.5.0"

// pins are the sha256 of the library's files that were built and tested together with this package: llama.cpp v0.5.0 as
// npm's @node-llama-cpp/linux-x64 3.22.1 has it, and the part for CUDA 13 of @node-llama-cpp/linux-x64-cuda 3.22.1, whose
// other files are the same. Others are used with a warning.
var pins = map[string]string{
	"libggml-cuda.so":               "f00882ca593ddf380778f5ac835690bcdaad951cd4700829c7a03aa0c32bcf47",
	"libllama.v0.5.0.so":            "2ecd1d85f68456573a664106a9039366b88231579fd65d9669c9a6ab41374fd4",
	"libggml.v0.5.0.so":             "41cd5e6ad78b9f0af31a6f80d637d3168e75ff84db14c495de4d3d9c95607444",
	"libggml-base.so":               "6c342c8aeb20cb31a18099d6f79de4de6703814d1cfd5c4d754a8643087e486e",
	"libggml-cpu-alderlake.so":      "6527efda35405a0d91574aced4a7766db9bb0494ab6458c83fe9eba755eb76f7",
	"libggml-cpu-cannonlake.so":     "44285a67a31a81a036a70c565d391b31145d835044c03c76cfaa2f90a9d57d42",
	"libggml-cpu-cascadelake.so":    "97cace813fbf7b7a07c4793f6a75b8b2d3de256430620f0be4a15bd4372468ea",
	"libggml-cpu-cooperlake.so":     "5eda284fd8986d550e21623b269dd31d02c07fc70121d3099609d5dde6b6847e",
	"libggml-cpu-haswell.so":        "ddaa96012769f0e86e8670cca374243751880bea2c2d0a4413b3a1b7a29dca74",
	"libggml-cpu-icelake.so":        "9b9c24aaa775fd38a6e1ff082549e50d4138d29f2e2883630b28ab70704ed896",
	"libggml-cpu-ivybridge.so":      "91b27ab81df92b8429c8e3441a8861014d3aec1424f90885a628fd0d4567532f",
	"libggml-cpu-piledriver.so":     "2cb5b2101f5bbefa2416ec7f8b6c6acb177d04f0157989c5d92e4c07750fd3f8",
	"libggml-cpu-sandybridge.so":    "bce17565033835dfb59fae2ed712d4c35e56463c2d49ea61ca08e6e2908bdfd6",
	"libggml-cpu-sapphirerapids.so": "e3d4840632b2242655e1721c6b93ec0370406dded9074accfe90bcfb67bd30b8",
	"libggml-cpu-skylakex.so":       "df30b40a957175cd8e462e8838632dc51e3be7570b27b9526cb7a044263aeab3",
	"libggml-cpu-sse42.so":          "ec65053445506965db5dd9382d7ede084ba639edc55f77aaf73581c778969e02",
	"libggml-cpu-x64.so":            "1174c3c3e0b8722313df561d7ef5ece516a070732cec9b8ddda3667c0b959728",
	"libggml-cpu-zen4.so":           "d84208de33fdadb8921a1a1a34342f5eceb1e58b83648be68050f7557312bd3e",
}
