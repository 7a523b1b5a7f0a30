// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/fleet/node"
	"github.com/floodwall/floodwall/internal/fleet/policies"
	"github.com/floodwall/floodwall/internal/fleet/wire"
)

var _ Hub = (*node.Agent)(nil)

// site is a node with a fake hub that the test controls, and a fake host that records its calls. TestFleetPolicies has real ones.
type site struct {
	*Follower
	t       *testing.T
	key     nkeys.KeyPair
	files   map[string][]byte
	spoil   bool                        // parts of files get wrong bytes
	reach   func(context.Context) error // nil: the hub can be reached
	now     Running
	applied []string
	told    wire.PolicyState
}

func newSite(t *testing.T) *site {
	t.Helper()
	key, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := key.PublicKey()
	s := &site{t: t, key: key, files: map[string][]byte{}, now: Running{Policy: "/before.yaml", Healthy: true}}
	s.Follower = &Follower{Node: "web-1", Key: public, Dir: filepath.Join(t.TempDir(), "policies"), Hub: s, Host: s, Log: func(string, error) {}}
	return s
}

// restart replaces the follower by one that a new daemon would start.
func (s *site) restart() {
	s.t.Helper()
	f := &Follower{Node: s.Node, Key: s.Key, Dir: s.Dir, Hub: s, Host: s, Log: s.Log}
	var err error
	if f.kept, err = readKept(f.Dir); err != nil {
		s.t.Fatal(err)
	}
	s.Follower = f
}

func (s *site) Order(context.Context) ([]byte, error) { return nil, nil }
func (s *site) Orders(func([]byte))                   {}
func (s *site) Tell(p wire.PolicyState)               { s.told = p }

func (s *site) Part(_ context.Context, sum string, part int) ([]byte, error) {
	b := s.files[sum]
	b = b[part*wire.PartSize : min((part+1)*wire.PartSize, len(b))]
	if s.spoil {
		b = append([]byte("#"), b[1:]...)
	}
	return b, nil
}

func (s *site) Reach(ctx context.Context) error {
	if s.reach != nil {
		return s.reach(ctx)
	}
	return nil
}

func (s *site) Apply(_ context.Context, policy string, _ time.Duration) error {
	s.applied = append(s.applied, filepath.Base(filepath.Dir(policy)))
	s.now = Running{Policy: policy, Trial: true, Healthy: true}
	return nil
}

func (s *site) Confirm(context.Context) error { s.now.Trial = false; return nil }

func (s *site) Rollback(context.Context, string) error {
	s.now = Running{Policy: "/before.yaml", Healthy: true}
	return nil
}

func (s *site) Running(context.Context) (Running, error) { return s.now, nil }

// order signs a policy with a list of the given size, and returns the order.
func (s *site) order(version uint64, text string, size int, change ...func(*policies.Manifest)) []byte {
	s.t.Helper()
	m := &policies.Manifest{Version: version, Stage: policies.All, Confirm: 10}
	for name, b := range map[string][]byte{"bad.txt": []byte(strings.Repeat("198.51.100.7\n", size)), policies.Policy: []byte(text)} {
		sum := policies.Sum(b)
		s.files[sum] = b
		m.Files = append(m.Files, policies.File{Name: name, Size: int64(len(b)), Sum: sum})
	}
	if m.Files[0].Name == policies.Policy {
		m.Files[0], m.Files[1] = m.Files[1], m.Files[0]
	}
	for _, c := range change {
		c(m)
	}
	order, err := policies.Sign(m, s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	return order
}

const good = "devices: [eth0]\ndefault: pass\nsets:\n  bad: {file: bad.txt}\nrules:\n  - {name: bad, from: $bad, then: drop}\n"

// is checks the phase of the node, the version that runs, and the versions that the node has applied.
func (s *site) is(what string, phase wire.Phase, runs uint64, applied string) {
	s.t.Helper()
	if got := strings.Join(s.applied, " "); s.kept.Phase != phase || s.kept.Runs != runs || got != applied {
		s.t.Errorf("%s: phase %q, version %d runs, applied %q (%s); want %q, %d, %q", what, s.kept.Phase, s.kept.Runs, got, s.why, phase, runs, applied)
	}
}

func (s *site) take(order []byte) (again bool) { return s.follow(s.t.Context(), order) }

// TestOrders uses a hub that misbehaves in five ways. The hub replays an old version. It publishes two contents of one version. It signs with another
// key. It offers a node a version that is only for other nodes. It serves other bytes than the signed ones.
func TestOrders(t *testing.T) {
	t.Parallel()
	s, evil := newSite(t), newSite(t)
	first := s.order(1, good, 1)
	s.take(evil.order(9, good, 1))
	s.is("a foreign key", "", 0, "")
	s.take(first)
	s.is("the first version", wire.Runs, 1, "1")
	if s.told.Runs != 1 || s.told.Drift != "" || s.told.Content == "" || !s.told.Healthy {
		t.Errorf("the hub is told %+v", s.told)
	}
	s.take(first)
	s.take(s.order(1, good, 2))
	s.is("the same version again, and with other files", wire.Runs, 1, "1")
	canary := func(m *policies.Manifest) { m.Stage, m.Canary = policies.Canary, []string{"web-2"} }
	s.take(s.order(3, good, 3, canary))
	s.is("for the canaries alone", wire.Waiting, 1, "1")
	s.take(s.order(2, good, 2))
	if s.is("an old one", wire.Waiting, 1, "1"); !strings.Contains(s.why, "it is old") {
		t.Errorf("of an old version it says %q", s.why)
	}
	s.restart()
	s.take(s.order(2, good, 2))
	s.is("an old one after a restart", wire.Waiting, 1, "1")
	s.spoil = true
	if again := s.take(s.order(3, good, 3)); !again || !strings.Contains(s.why, "is not the one of the manifest") {
		t.Errorf("bytes that were not signed: again %v, %q", again, s.why)
	}
	s.is("other bytes", wire.Loading, 1, "1")
	s.spoil = false
	s.take(s.order(3, good, 3))
	s.is("for all", wire.Runs, 3, "1 3")
	s.take(s.order(4, good, 2*wire.PartSize/13+1))
	s.is("a list of three parts", wire.Runs, 4, "1 3 4")
	s.now.Policy = "/own.yaml"
	if s.tell(t.Context()); s.told.Drift != "changed by hand: /own.yaml runs" {
		t.Errorf("the hub is told %+v", s.told)
	}
}

// TestBadPolicies uses signed versions that no node may apply. No version may be applied, and the running policy must stay.
func TestBadPolicies(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for version, text := range map[uint64]string{
		1: "devices: [eth0]\nwhat: 1\n",
		2: strings.Replace(good, "rules:", "  all: {file: /etc/shadow}\nrules:", 1),
		3: "daemon: {crowdsec: {url: https://example.com/, key_file: /etc/shadow}}\n" + good,
		4: "devices: [eth0]\ndefault: pass\n",
	} {
		s.kept = kept{}
		s.take(s.order(version, text, 1))
		if s.is(text, wire.Failed, 0, ""); s.told.Phase != wire.Failed || s.told.Problem == "" {
			t.Errorf("the hub is told %+v", s.told)
		}
	}
}

// TestTrials uses policies that cut off the node from the hubs, a daemon that is killed during a trial, and a version that arrives during a trial.
func TestTrials(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.take(s.order(1, good, 1))
	s.reach = func(ctx context.Context) error { <-ctx.Done(); return errors.New("cut off") }
	cut := s.order(2, good, 2)
	m, err := policies.Open(cut, s.Key)
	if err != nil {
		t.Fatal(err)
	}
	k := s.kept
	k.Seen, k.Content, k.Phase, k.Ends = 2, m.Content(), wire.Trial, time.Now()
	s.keep(k)
	s.now = Running{Policy: s.policy(2), Trial: true}
	s.decide(t.Context()) // the time of the trial is over
	s.is("it cuts the node off", wire.Failed, 1, "1")
	if s.now.Policy != "/before.yaml" || !strings.Contains(s.told.Problem, "no hub was reached") {
		t.Errorf("%+v runs, the hub is told %+v", s.now, s.told)
	}
	s.take(cut)
	s.is("it is not tried again", wire.Failed, 1, "1")
	if s.tell(t.Context()); !strings.Contains(s.told.Problem, "no hub was reached") {
		t.Errorf("after the same order once more the hub is told %+v", s.told)
	}

	ctx, kill := context.WithCancel(t.Context())
	s.reach = func(context.Context) error { kill(); return errors.New("killed") }
	third := s.order(3, good, 3)
	s.follow(ctx, third)
	s.is("killed in the trial", wire.Trial, 1, "1 3")
	s.restart()
	s.reach = nil
	s.take(s.order(4, good, 4)) // the trial is decided first
	s.is("the trial goes on", wire.Runs, 3, "1 3")
	s.take(s.order(4, good, 4))
	s.is("then the version that came meanwhile", wire.Runs, 4, "1 3 4")

	fifth := s.order(5, good, 5)
	for try := range maxTries {
		ctx, kill = context.WithCancel(t.Context())
		s.reach = func(context.Context) error { kill(); return errors.New("killed") }
		s.follow(ctx, fifth)
		s.Rollback(t.Context(), "") // as the kernel does
		s.restart()
		s.follow(t.Context(), nil)
		if want := []wire.Phase{wire.Loading, wire.Failed}[try]; s.kept.Phase != want {
			t.Errorf("killed in %d trials: phase %q, want %q", try+1, s.kept.Phase, want)
		}
	}
	s.is("killed twice", wire.Failed, 4, "1 3 4 5 5")

	ctx, kill = context.WithCancel(t.Context())
	s.reach = nil
	sixth := s.order(6, good, 6)
	s.take(sixth)
	k = s.kept
	k.Phase, k.Runs = wire.Trial, 4 // killed after the confirmation, but before it was recorded
	s.keep(k)
	s.restart()
	s.follow(ctx, nil)
	s.is("confirmed, and not noted", wire.Runs, 6, "1 3 4 5 5 6")
	kill()
	if left, _ := os.ReadDir(s.Dir); len(left) > 6 {
		t.Errorf("%d files are left of six versions", len(left))
	}
}

// TestFullDisk uses a directory that cannot be written. Nothing may be applied, and the version must be tried again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if err := os.WriteFile(s.Dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	order := s.order(1, good, 1)
	if again := s.take(order); !again {
		t.Error("it is not tried again")
	}
	s.is("a full disk", "", 0, "")
	if err := os.Remove(s.Dir); err != nil {
		t.Fatal(err)
	}
	s.take(order)
	s.is("with space again", wire.Runs, 1, "1")
	if err := os.WriteFile(filepath.Join(s.Dir, keptFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readKept(s.Dir); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a damaged file: %v", err)
	}
}
