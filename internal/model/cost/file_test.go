// SPDX-License-Identifier: Apache-2.0

package cost_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/internal/model/cost"
)

// whole returns a model with all required figures.
func whole(t *testing.T) *cost.Model {
	host, err := cost.ThisHost()
	if err != nil {
		t.Fatal(err)
	}
	return &cost.Model{
		Host: host, Conntrack: 200, Route: 50,
		Reach: map[string]float64{"xdp": 30, "ingress": 150, "raw": 200, "filter": 300},
		Work: map[string]cost.Work{
			"xdp/xdp": {Hook: 10, Rule: 1}, "nftables/ingress": {Hook: 20, Rule: 10, Set: 30, Limit: 60, Local: 40},
			"nftables/raw": {Hook: 20, Rule: 10, Local: 40}, "nftables/filter": {Hook: 25, Rule: 10, Local: 40},
		},
	}
}

// TestWriteRead checks that Read returns the model that Write has written, and that a second Write replaces it.
func TestWriteRead(t *testing.T) {
	state := filepath.Join(t.TempDir(), "made", "state")
	m := whole(t)
	for range 2 {
		if err := m.Write(state); err != nil {
			t.Fatal(err)
		}
		got, err := cost.Read(state, m.Host)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got); diff != "" || got.Time.IsZero() {
			t.Errorf("(-written +read):\n%s", diff)
		}
		m.Route++
	}
	if names, _ := filepath.Glob(filepath.Join(state, "*")); len(names) != 1 || names[0] != cost.Path(state) {
		t.Errorf("files: %v", names)
	}
	if names, _ := filepath.Glob(filepath.Join(state, ".cost*")); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
}

// TestReadRefuses checks that Read rejects models of other hosts and invalid files, with a remedy.
func TestReadRefuses(t *testing.T) {
	m := whole(t)
	for _, tt := range []struct {
		what  string
		spoil func(*cost.Model)
	}{
		{"another kernel", func(m *cost.Model) { m.Host.Kernel = "5.1" }},
		{"another CPU", func(m *cost.Model) { m.Host.CPU += "X" }},
		{"another number of cores", func(m *cost.Model) { m.Host.Cores++ }},
		{"another mitigations", func(m *cost.Model) { m.Host.Mitigations = ""; m.Host.Mitigations += "x" }},
		{"the cost of reaching stage raw is missing", func(m *cost.Model) { delete(m.Reach, "raw") }},
		{"the work of nftables/filter is missing", func(m *cost.Model) { delete(m.Work, "nftables/filter") }},
		{"a negative cost", func(m *cost.Model) { m.Route = -1 }},
	} {
		state := t.TempDir()
		spoilt := whole(t)
		tt.spoil(spoilt)
		if err := spoilt.Write(state); err != nil {
			t.Fatal(err)
		}
		refused(t, state, m.Host, tt.what)
	}
	state := t.TempDir()
	for text, what := range map[string]string{"{": "unexpected end", `{"version": 1}`: "another version", "{}": "another version"} {
		if err := os.WriteFile(cost.Path(state), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		refused(t, state, m.Host, what)
	}
	if _, err := cost.Read(t.TempDir(), m.Host); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
}

func refused(t *testing.T, state string, host cost.Host, what string) {
	t.Helper()
	_, err := cost.Read(state, host)
	var file *cost.FileError
	if !errors.As(err, &file) || !strings.Contains(err.Error(), what) || !strings.Contains(file.Hint(), "--calibrate") {
		t.Errorf("%s: %v", what, err)
	}
}

// TestThisHost checks that repeated calls of ThisHost return the same host, with all properties that distinguish it from other hosts.
func TestThisHost(t *testing.T) {
	a, err := cost.ThisHost()
	b, again := cost.ThisHost()
	if err != nil || again != nil || a != b {
		t.Fatalf("%+v %v, then %+v %v", a, err, b, again)
	}
	if release, _ := os.ReadFile("/proc/sys/kernel/osrelease"); !strings.HasPrefix(a.Kernel, strings.TrimSpace(string(release))+" ") {
		t.Errorf("kernel %q, the system says %q", a.Kernel, release)
	}
	if a.Cores < 1 {
		t.Errorf("%+v", a)
	}
}
