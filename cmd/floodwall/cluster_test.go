// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/floodwall/floodwall/internal/fleet/node"
	"github.com/floodwall/floodwall/test/testutil"
)

// dropped stores the bans of an agent. It replaces a set in the kernel.
type dropped struct {
	mu  sync.Mutex
	has map[string]bool
}

func (d *dropped) Block(_ context.Context, bans []node.Ban) (map[netip.Prefix]error, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range bans {
		d.has[b.Prefix.String()] = true
	}
	return nil, nil
}

func (*dropped) Unblock(context.Context, []netip.Prefix, bool) ([]netip.Prefix, error) {
	return nil, nil
}

func (*dropped) Never(context.Context) (func(netip.Prefix) bool, error) {
	return func(netip.Prefix) bool { return false }, nil
}
func (*dropped) Capacity() int { return 0 }

func (d *dropped) drops(p string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.has[p]
}

// TestExistingCluster runs a nats-server with the configuration in the guide and the keys from the commands, a hub and two nodes. A ban must get from
// one node to the other. No node may send messages in the name of another node, receive answers to another node, or act as a hub.
func TestExistingCluster(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	sh(t, "ip link set lo up")
	dir := t.TempDir()
	const url = "nats://127.0.0.1:4222"
	users := map[string]string{}
	user := regexp.MustCompile(`\{nkey: (U[A-Z0-9]{55}), .*\}\n`)
	out := mustFloodwall(t, "hub", "init", "--dir", filepath.Join(dir, "hub"), "--nats", url)
	users["UDHUB"] = user.FindStringSubmatch(out)[1]
	controller := regexp.MustCompile(`public key (U[A-Z0-9]{55})`).FindStringSubmatch(out)[1]
	var printed strings.Builder
	for _, name := range []string{"web-1", "web-2"} {
		out := mustFloodwall(t, "join", "--name", name, "--nats", url, "--controller", controller, "--state", filepath.Join(dir, name))
		found := user.FindStringSubmatch(out)
		users["UD"+strings.ToUpper(strings.ReplaceAll(name, "-", ""))] = found[1]
		printed.WriteString(found[0])
	}
	config := ""
	for _, f := range fences(t, "docs/guides/fleet.md") {
		if f.file == "nats.conf" {
			config = f.text
		}
	}
	line := regexp.MustCompile(`(?m)^ *\{nkey: UDWEB1.*$`).FindString(config)
	config = strings.Replace(config, line, line+"\n"+strings.ReplaceAll(strings.ReplaceAll(line, "web-1", "web-2"), "UDWEB1", "UDWEB2"), 1)
	for name, key := range users {
		config = strings.ReplaceAll(config, name, key)
	}
	for want := range strings.Lines(printed.String()) {
		if !strings.Contains(config, want) {
			t.Errorf("the guide's configuration is not what join prints:\n%s", want)
		}
	}
	writeFile(t, filepath.Join(dir, "nats.conf"), config)
	run := func(name string, args ...string) {
		c := exec.Command(name, args...)
		log := &strings.Builder{}
		c.Stdout, c.Stderr = log, log
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			c.Process.Kill()
			if c.Wait(); t.Failed() {
				t.Logf("%s: %s", name, log)
			}
		})
	}
	run(natsServer(t), "--config", filepath.Join(dir, "nats.conf"), "--addr", "127.0.0.1", "--port", "4222", "--store_dir", filepath.Join(dir, "store"))
	waitFor(t, "the server", func() bool { return reachable("127.0.0.1:4222") })
	run("floodwall", "hub", "run", "--dir", filepath.Join(dir, "hub"))
	nodes := map[string]*dropped{}
	agents := map[string]*node.Agent{}
	for _, name := range []string{"web-1", "web-2"} {
		file, err := node.Read(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		nodes[name] = &dropped{has: map[string]bool{}}
		if agents[name], err = node.New(file, nodes[name], func(_ string, err error) {
			if err != nil {
				t.Error(err)
			}
		}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = agents[name].Run(ctx) })
		t.Cleanup(func() { cancel(); running.Wait() })
	}
	ban := func(name, p string) {
		now := time.Now()
		agents[name].Local([]node.Local{{Prefix: netip.MustParsePrefix(p), Start: now, End: now.Add(time.Hour)}}, false)
	}
	ban("web-1", "198.51.100.1/32")
	waitFor(t, "web-2 drops what web-1 bans", func() bool { return nodes["web-2"].drops("198.51.100.1/32") })
	waitFor(t, "both drop what the controller bans", func() bool {
		mustFloodwall(t, "hub", "ban", "198.18.0.0/16", "--dir", filepath.Join(dir, "hub"))
		return nodes["web-1"].drops("198.18.0.0/16") && nodes["web-2"].drops("198.18.0.0/16")
	})
	hostileUser(t, url, filepath.Join(dir, "web-2"))
	ban("web-2", "198.51.100.2/32")
	waitFor(t, "web-1 drops what web-2 bans", func() bool { return nodes["web-1"].drops("198.51.100.2/32") })
	mustFloodwall(t, "hub", "nodes", "--dir", filepath.Join(dir, "hub"))
	if text, err := os.ReadFile(filepath.Join(dir, "hub", "hub.json")); err != nil || !strings.Contains(string(text), url) {
		t.Errorf("hub.json: %v %s", err, text)
	}
}

// natsServer builds the program nats-server, and returns its path.
func natsServer(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "nats-server")
	build := exec.Command("scripts/go", "build", "-o", file, "github.com/nats-io/nats-server/v2")
	build.Dir = testutil.Top(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building nats-server: %v\n%s", err, out)
	}
	return file
}

// hostileUser connects with the key of a node and tries forbidden actions. The server must refuse each of them.
func hostileUser(t *testing.T, url, state string) {
	t.Helper()
	file, err := node.Read(state)
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 100)
	seed := filepath.Join(t.TempDir(), "seed")
	writeFile(t, seed, file.Seed)
	key, err := nats.NkeyOptionFromSeed(seed)
	if err != nil {
		t.Fatal(err)
	}
	c, err := nats.Connect(url, key, nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tries := 0
	for _, subject := range []string{"fw.node.web-1.ban", "fw.ban.4.c6336401.32", "fw.live", "fw.beat", "fw.inbox.web-1.sync.1", "fw.admin.say", "fw.node.web-1.state", "fw.policy.head", "fw.policies", "$JS.API.INFO"} {
		tries++
		if err := c.Publish(subject, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, subject := range []string{"fw.inbox.web-1.>", "fw.inbox.*.>", "fw.node.>", ">"} {
		tries++
		if _, err := c.SubscribeSync(subject); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	for n := range tries {
		select {
		case err := <-refused:
			if !strings.Contains(err.Error(), "ermissions") {
				t.Errorf("the server says %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the server refuses %d of %d", n, tries)
		}
	}
}
