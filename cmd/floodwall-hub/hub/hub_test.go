// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/floodwall/floodwall/internal/text/wording"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestStartFails uses state directories with which no hub can run. Each start must name a remedy, and leave nothing running.
func TestStartFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(dir string) error
		want  string
	}{
		"no directory":          {func(dir string) error { return os.RemoveAll(dir) }, "hub init"},
		"no key of the hub":     {func(dir string) error { return os.Remove(filepath.Join(dir, adminFile)) }, "no such file"},
		"a key for all to read": {func(dir string) error { return os.Chmod(filepath.Join(dir, adminFile), 0o644) }, "can be read by others"},
		"half a certificate":    {func(dir string) error { return os.Truncate(filepath.Join(dir, certFile), 100) }, "certificate"},
		"no certificate":        {func(dir string) error { return os.Remove(filepath.Join(dir, caFile)) }, "no such file"},
		"not its address":       {func(string) error { return nil }, "cannot listen"},
	} {
		dir := filepath.Join(t.TempDir(), "hub")
		peer, err := NewPeer("hub", "192.0.2.1") // no host of a test has this address
		if err == nil {
			_, err = Init(dir, []Peer{peer}, LeastDisk)
		}
		if err == nil {
			err = test.spoil(dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		c, err := Read(dir)
		if err == nil {
			_, err = Start(context.Background(), c, func(string) {})
		}
		text := ""
		if err != nil {
			text = err.Error()
			if h, ok := err.(interface{ Hint() string }); ok {
				text += h.Hint()
			}
		}
		if !strings.Contains(text, test.want) {
			t.Errorf("%s: %q, want %q", name, text, test.want)
		}
	}
}

// TestForeignKey uses a key file with the right mode, but of another user, who may have chosen the key.
func TestForeignKey(t *testing.T) {
	t.Parallel()
	testutil.RequireRoot(t)
	file := filepath.Join(t.TempDir(), adminFile)
	err := os.WriteFile(file, nil, 0o600)
	if err == nil {
		err = os.Chown(file, 65534, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readSeed(file); err == nil || !strings.Contains(err.Error(), "belongs to user 65534") {
		t.Error(err)
	}
}

// TestInitTwice checks that a second init keeps the keys of a fleet.
func TestInitTwice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	peer, err := NewPeer("hub", "192.0.2.1:5000")
	if err == nil {
		_, err = Init(dir, []Peer{peer}, LeastDisk)
	}
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(filepath.Join(dir, ControllerFile))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Init(dir, []Peer{peer}, LeastDisk); err == nil {
		t.Error("it is made twice")
	}
	if after, _ := os.ReadFile(filepath.Join(dir, ControllerFile)); string(after) != string(before) {
		t.Error("the key has changed")
	}
	for _, bad := range []string{"", ":4222"} {
		if p, err := NewPeer("hub", bad); err == nil {
			t.Errorf("address %q is taken: %v", bad, p)
		}
	}
}

// TestOfCluster runs commands that do not exist for a fleet on an existing NATS cluster. The error must name what to use instead.
func TestOfCluster(t *testing.T) {
	t.Parallel()
	c := &Client{config: &Config{NATS: "tls://nats.example:4222", Controller: "UDCONTROLLER"}}
	_, invited := c.Invite(t.Context(), "web-1", time.Hour)
	_, revoked := c.Revoke(t.Context(), "web-1")
	for err, want := range map[error]string{invited: "floodwall join --name web-1", revoked: "remove the user of web-1"} {
		if e := (*wording.HintError)(nil); !errors.As(err, &e) || !strings.Contains(e.Hint(), want) {
			t.Errorf("%v, want a hint with %q", err, want)
		}
	}
}

// TestManyMembers uses a fleet with more nodes than fit into a NATS message. All nodes must be listed.
func TestManyMembers(t *testing.T) {
	t.Parallel()
	h := newHub(t)
	const nodes = 12 * maxNodesAnswer
	for i := range nodes {
		h.members.set(Member{Name: fmt.Sprintf("a-node-with-a-long-name-%08d", i), State: Joined, Key: strings.Repeat("U", 48) + fmt.Sprintf("%08d", i), Since: time.Now()}, uint64(i+1))
	}
	c, err := Dial(h.config, nats.InProcessServer(h.server))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	all, err := c.Nodes(t.Context())
	if err != nil || len(all) != 1 || len(all[0].Members) != nodes || all[0].Members[nodes-1].Name != fmt.Sprintf("a-node-with-a-long-name-%08d", nodes-1) {
		t.Errorf("%d hubs answer: %v", len(all), err)
	}
}
