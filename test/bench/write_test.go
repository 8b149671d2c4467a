package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// some is the report of a bench whose tables stand in page.md.
func some(caption string) Report {
	return Report{Head: Head{Bench: "some", Title: "Something"}, Figures: []int{1}, Text: "new\n", Picture: "<svg/>", Page: "page.md", Caption: caption}
}

const page = "before\n<!-- bench-some -->\nold\n<!-- /bench-some -->\nafter\n"

// tree is the root of a tree with such a page.
func tree(t *testing.T, page string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "docs", "page.md"), []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestAReportIsKeptInThreeFiles(t *testing.T) {
	root := tree(t, page)
	if err := some("A picture").Keep(root, false); err != nil {
		t.Fatal(err)
	}
	for ending, want := range map[string]string{"json": `"bench": "some"`, "md": "# Something\n\nnew\n", "svg": "<svg/>"} {
		if got := read(t, Out(root), "some."+ending); !strings.Contains(got, want) {
			t.Errorf("some.%s: %s", ending, got)
		}
	}
	if got := read(t, root, "docs", "page.md"); got != page {
		t.Errorf("nobody asked for it to be published: %s", got)
	}
}

func TestAPageKeepsWhatIsAroundTheTables(t *testing.T) {
	for caption, want := range map[string]string{"": "new\n", "A picture": "![A picture](bench-some.svg)\n\nnew\n"} {
		root := tree(t, page)
		for range 2 {
			if err := some(caption).Keep(root, true); err != nil {
				t.Fatal(err)
			}
		}
		if got := read(t, root, "docs", "page.md"); got != "before\n<!-- bench-some -->\n"+want+"<!-- /bench-some -->\nafter\n" {
			t.Errorf("%s", got)
		}
	}
}

func TestAPageHasThePictureBesideItThatItShows(t *testing.T) {
	for caption, want := range map[string]int{"": 0, "A picture": 1} {
		root := tree(t, page)
		if err := some(caption).Keep(root, true); err != nil {
			t.Fatal(err)
		}
		if found, err := filepath.Glob(filepath.Join(root, "docs", "bench-some.svg")); err != nil || len(found) != want {
			t.Errorf("caption %q: %q, %v", caption, found, err)
		}
	}
}

func TestAPageWithoutAPlaceForTheTablesIsLeftAlone(t *testing.T) {
	for _, bad := range []string{"", "<!-- bench-some -->\n", "before <!-- /bench-some -->"} {
		root := tree(t, bad)
		if err := some("").Keep(root, true); err == nil || !strings.Contains(err.Error(), "page.md") {
			t.Errorf("%q has a place: %v", bad, err)
		}
		if got := read(t, root, "docs", "page.md"); got != bad {
			t.Errorf("%q is now %q", bad, got)
		}
	}
}
