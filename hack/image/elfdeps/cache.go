package elfdeps

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Cache is the dynamic loader's cache: the files for each library name, the loader's preference first.
type Cache map[string][]string

// Ldconfig reads this machine's cache.
func Ldconfig(ctx context.Context) (Cache, error) {
	program := "ldconfig"
	if _, err := exec.LookPath(program); err != nil {
		program = "/sbin/ldconfig" // a user's PATH often lacks it
	}
	text, err := exec.CommandContext(ctx, program, "-p").Output()
	if err != nil {
		return nil, fmt.Errorf("list this machine's libraries with %s -p: %w", program, err)
	}
	return ParseCache(string(text)), nil
}

// ParseCache reads what ldconfig -p prints: lines of "NAME (KIND) => PATH" under a heading.
func ParseCache(text string) Cache {
	c := Cache{}
	for line := range strings.Lines(text) {
		left, path, ok := strings.Cut(strings.TrimSpace(line), " => ")
		name, _, kind := strings.Cut(left, " (")
		if ok && kind && path != "" {
			c[name] = append(c[name], path)
		}
	}
	return c
}
