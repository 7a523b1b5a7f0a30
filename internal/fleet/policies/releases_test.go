// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/internal/text/wording"
)

// hubs are fake hubs that store orders, with fake nodes whose state changes at once to the result of become. TestFleetPolicies uses real hubs and
// nodes.
type hubs struct {
	t      *testing.T
	key    string
	orders map[uint64][]byte
	head   []byte
	files  map[string][]byte
	states map[string]wire.PolicyState
	become func(name string, m *Manifest) wire.PolicyState
	looked int
	change func(looked int) // called before each read of the states
	lost   error            // the error of each read of the states; nil: the hubs are reachable
}

func (h *hubs) Order(_ context.Context, version uint64) ([]byte, error) {
	if version == 0 {
		return h.head, nil
	}
	return h.orders[version], nil
}

func (h *hubs) Put(_ context.Context, was, order []byte, version uint64, content map[string][]byte) error {
	if string(was) != string(h.head) {
		return errors.New("somebody else")
	}
	for sum, b := range content {
		h.files[sum] = b
	}
	h.orders[version], h.head = order, order
	m, err := Open(order, h.key)
	if err != nil {
		h.t.Fatal(err)
	}
	for name := range h.states {
		if m.For(name) {
			h.states[name] = h.become(name, m)
		}
	}
	return nil
}

func (h *hubs) File(_ context.Context, f File) ([]byte, error) { return h.files[f.Sum], nil }

func (h *hubs) States(context.Context) (map[string]wire.PolicyState, error) {
	if h.looked++; h.change != nil {
		h.change(h.looked)
	}
	return h.states, h.lost
}

func runs(_ string, m *Manifest) wire.PolicyState {
	return wire.PolicyState{Version: m.Version, Runs: m.Version, Content: m.Content(), Phase: wire.Runs, Healthy: true}
}

func newHubs(t *testing.T) (*hubs, Plan, string) {
	t.Helper()
	key, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := key.PublicKey()
	h := &hubs{t: t, key: public, orders: map[uint64][]byte{}, files: map[string][]byte{}, become: runs, states: map[string]wire.PolicyState{"a": {}, "b": {}}}
	p := Plan{Key: key, Canary: []string{"a"}, Trial: 10 * time.Second, Tell: func(string) {}, Took: func(uint64) error { return nil }}
	dir := t.TempDir()
	return h, p, dir
}

func writePolicy(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, Policy), []byte("devices: [eth0]\ndefault: pass\nrules:\n  - {name: "+name+", port: udp/1, then: drop}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestStages releases versions to canaries that fail, are silent, or are changed by hand during the pause. No other node may get these versions.
func TestStages(t *testing.T) {
	t.Parallel()
	h, p, dir := newHubs(t)
	writePolicy(t, dir, "one")
	if v, err := Push(t.Context(), h, dir, p); err != nil || v != 1 || h.states["b"].Runs != 1 {
		t.Fatalf("version %d: %v, %+v", v, err, h.states)
	}
	writePolicy(t, dir, "two")
	for name, test := range map[string]struct {
		become func(string, *Manifest) wire.PolicyState
		change func(h *hubs, looked int)
		want   string
	}{
		"fails": {func(_ string, m *Manifest) wire.PolicyState {
			return wire.PolicyState{Version: m.Version, Runs: 1, Phase: wire.Failed, Problem: "cut off"}
		}, nil, "canary a: cut off"},
		"silent": {runs, func(h *hubs, looked int) {
			if s := h.states["a"]; looked == 3 {
				s.Age = 60
				h.states["a"] = s
			}
		}, "no hub has heard of it for 60 s"},
		"by hand": {runs, func(h *hubs, looked int) {
			if s := h.states["a"]; looked == 3 {
				s.Drift = "changed by hand"
				h.states["a"] = s
			}
		}, "changed by hand"},
		"not in force": {func(name string, m *Manifest) wire.PolicyState {
			s := runs(name, m)
			s.Healthy = false
			return s
		}, nil, "not in force"},
	} {
		h.looked, h.become, h.change = 0, test.become, nil
		if test.change != nil {
			h.change = func(looked int) { test.change(h, looked) }
		}
		h.states["a"] = wire.PolicyState{}
		_, err := Push(t.Context(), h, dir, p)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "goes to no other node") || h.states["b"].Runs != 1 {
			t.Errorf("%s: %v, %+v", name, err, h.states["b"])
		}
	}
	h.change, h.become = nil, runs
	p.Canary = []string{"c"}
	if _, err := Push(t.Context(), h, dir, p); err == nil || !strings.Contains(err.Error(), "canary c does not report") {
		t.Errorf("a canary that there is not: %v", err)
	}
}

// TestRollbackGrows rolls back, which makes a new version with the files of an earlier one. It uses hubs that hide the last versions, that serve
// other files than the signed ones, and that have an order of another key.
func TestRollbackGrows(t *testing.T) {
	t.Parallel()
	h, p, dir := newHubs(t)
	p.Canary = nil
	for _, name := range []string{"one", "two", "two"} {
		writePolicy(t, dir, name)
		if _, err := Push(t.Context(), h, dir, p); err != nil {
			t.Fatal(err)
		}
	}
	first, _ := Open(h.orders[1], h.key)
	if v, err := Rollback(t.Context(), h, 0, p); err != nil || v != 4 || h.states["a"].Content != first.Content() {
		t.Fatalf("version %d: %v, %+v", v, err, h.states)
	}
	if _, err := Rollback(t.Context(), h, 0, p); err == nil || !strings.Contains(err.Error(), "a rollback from version 3") || h.states["a"].Version != 4 {
		t.Errorf("a rollback twice brings the files back that the first one left: %v, %+v", err, h.states)
	}
	h.head = h.orders[1]
	p.Least = 4
	if v, err := Push(t.Context(), h, dir, p); err != nil || v != 5 {
		t.Errorf("the hubs hide three versions: the next is %d: %v", v, err)
	}
	for sum := range h.files {
		h.files[sum] = []byte("other")
	}
	if _, err := Rollback(t.Context(), h, 1, p); err == nil || !strings.Contains(err.Error(), "not what was signed") {
		t.Errorf("other files: %v", err)
	}
	if _, err := Rollback(t.Context(), h, 77, p); err == nil || !strings.Contains(err.Error(), "no earlier version") {
		t.Errorf("a version that there is not: %v", err)
	}
	other, _, _ := newHubs(t)
	_, foreign, _ := newHubs(t)
	other.head = h.head
	if _, err := Push(t.Context(), other, dir, foreign); err == nil || !strings.Contains(err.Error(), "another key") {
		t.Errorf("another key: %v", err)
	}
	other.key, _ = foreign.Key.PublicKey()
	foreign.NewKey, foreign.Canary = true, nil
	if v, err := Push(t.Context(), other, dir, foreign); err != nil || v != 1 || other.states["a"].Runs != 1 {
		t.Errorf("a new key takes the place of another: version %d: %v, %+v", v, err, other.states)
	}
}

// TestReleaseEnds ends two releases during the pause: a person ends the first one, and the second one loses the hubs, whose error has a remedy. Both
// errors must name the nodes that have the version, and no other node may get the version. If a canary ends a release, the error must say so.
func TestReleaseEnds(t *testing.T) {
	t.Parallel()
	const stays = "version 1 stays at the canaries, and goes to no other node: a\n"
	lost := wording.Hinted("no hub can be reached", "see whether one runs")
	for name, test := range map[string]struct {
		happens func(h *hubs, end func())
		is      func(error) bool
		stays   bool
	}{
		"a person ends it":  {func(_ *hubs, end func()) { end() }, func(err error) bool { return errors.Is(err, context.Canceled) }, true},
		"the hubs are lost": {func(h *hubs, _ func()) { h.lost = lost }, func(err error) bool { return errors.Is(err, lost) }, true},
		"the canary is silent": {func(h *hubs, _ func()) { h.states["a"] = wire.PolicyState{Age: 60} },
			func(err error) bool {
				return err != nil && strings.Contains(err.Error(), "version 1 goes to no other node: canary a: no hub has heard of it")
			}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, p, dir := newHubs(t)
			writePolicy(t, dir, "one")
			ctx, end := context.WithCancel(t.Context())
			defer end()
			said := ""
			p.Pause, p.Tell = time.Hour, func(text string) { said += text + "\n" }
			h.change = func(looked int) {
				if looked == 3 {
					test.happens(h, end)
				}
			}
			_, err := Push(ctx, h, dir, p)
			if !test.is(err) || strings.Contains(said, stays) != test.stays || h.states["b"].Runs != 0 {
				t.Errorf("%v: %s%+v", err, said, h.states)
			}
		})
	}
}

// TestKey checks that a key and its last version are stored, and that keys of another type and keys that other users may read are refused.
func TestKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "key")
	public, err := NewKey(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewKey(file); err == nil {
		t.Error("a key is written over another")
	}
	key, last, took, err := ReadKey(file)
	if err != nil || last != 0 {
		t.Fatal(last, err)
	}
	if is, _ := key.PublicKey(); is != public {
		t.Errorf("the key is %s, want %s", is, public)
	}
	if err := took(41); err != nil {
		t.Fatal(err)
	}
	if _, last, _, err = ReadKey(file); err != nil || last != 41 {
		t.Errorf("the last version is %d: %v", last, err)
	}
	if err := os.Chmod(file, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := ReadKey(file); err == nil || !strings.Contains(err.Error(), "read by others") {
		t.Errorf("a key for all to read: %v", err)
	}
	user, _ := nkeys.CreateUser()
	seed, _ := user.Seed()
	if err := os.WriteFile(file, seed, 0o600); err != nil || os.Chmod(file, 0o600) != nil {
		t.Fatal(err)
	}
	if _, _, _, err := ReadKey(file); err == nil || !strings.Contains(err.Error(), "another kind") {
		t.Errorf("the controller's key: %v", err)
	}
}
