package fetch

import "path"

// LibraryCUDA is the name of llama.cpp's part for NVIDIA's GPUs.
const LibraryCUDA = "libggml-cuda.so"

// LlamaCUDA is llama.cpp's part for NVIDIA's GPUs. What else its package holds is in Libraries: the same files, but for
// libllama and libggml, which are the same programs under another name.
func LlamaCUDA() Package {
	return Package{
		Key: "ggml-cuda-" + LlamaVersion + "-3.22.1", Title: "llama.cpp's part for CUDA", Client: NPM,
		Spec: "@node-llama-cpp/linux-x64-cuda@3.22.1", Bytes: 142898030,
		Archive: "sha512:f2b4028f234d2d9254162b7e6298f0942e21c242a038c224076c2ec9c2817fc3" +
			"54d8edf248a6e259943c6b0f64bb69d44d78d29d422b13a281f3c8ad76e4c1b8",
		Files: []File{{"package/bins/linux-x64-cuda/" + LibraryCUDA, LibraryCUDA,
			"f00882ca593ddf380778f5ac835690bcdaad951cd4700829c7a03aa0c32bcf47"}},
	}
}

// CUDA is what llama.cpp's part for NVIDIA's GPUs is linked to and a GPU's driver doesn't bring: of the release of CUDA
// that it was built with. The files are NVIDIA's, under the license beside them; whoever fetches them agrees to it.
func CUDA() []Package {
	const folder, license = "nvidia/cu13/lib/", "ad6f5853fba0ca0d159d0f58d49ae49830c2f8c93f7a92648b9ce90adb4c6ccd"
	return []Package{
		{
			Key: "nvidia-cuda-runtime-13.1.80", Title: "NVIDIA's CUDA runtime", Client: Pip, Spec: "nvidia-cuda-runtime==13.1.80", Bytes: 2297816,
			Archive: "sha256:dac25b52e69050e5a7a84957e6df470a85b185f8f648a99a1ab1dfce027576cf",
			Files: []File{
				{folder + "libcudart.so.13", "libcudart.so.13", "9955aa41ec390676be408b6c615f3d94f067f64cb756ef3cdf2b656ac2a81900"},
				{"nvidia_cuda_runtime-13.1.80.dist-info/licenses/License.txt", "LICENSE.nvidia-cuda-runtime", license},
			},
		},
		{
			Key: "nvidia-cublas-13.2.1.1", Title: "NVIDIA's cuBLAS", Client: Pip, Spec: "nvidia-cublas==13.2.1.1", Bytes: 401085577,
			Archive: "sha256:8c13c93cf8be4480b4909905c96d2d31575b4af43fcd3af0e84af94762665e4f",
			Files: []File{
				{folder + "libcublas.so.13", "libcublas.so.13", "f88d93a46abe3f03805c310b4d820d17398a90067080dd54acfd3a21d1415799"},
				{folder + "libcublasLt.so.13", "libcublasLt.so.13", "a171fffeac32be8ff86b2492ba89e0fb666ecb1b3f656596fcc969b8886274be"},
				{"nvidia_cublas-13.2.1.1.dist-info/licenses/License.txt", "LICENSE.nvidia-cublas", license},
			},
		},
	}
}

// Shared reports whether f is a shared library, and not a text beside it.
func (f File) Shared() bool {
	matched, err := path.Match("lib*.so*", f.Name)
	return matched && err == nil
}
