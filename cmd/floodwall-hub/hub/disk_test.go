// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/fleet/node"
	"github.com/floodwall/floodwall/internal/fleet/wire"
	"github.com/floodwall/floodwall/test/testutil"
)

// onDisk mounts a file system of a size, and makes a hub's state on it.
func onDisk(t *testing.T, size, diskMB int) *Config {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("hub", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	peer, err := NewPeer("hub", "127.0.0.1")
	if err == nil {
		_, err = Init(dir, []Peer{peer}, diskMB)
	}
	c, readErr := Read(dir)
	if err != nil || readErr != nil {
		t.Fatal(err, readErr)
	}
	return c
}

// fillDisk uses up all space of a disk by a file. It returns the file's name.
func fillDisk(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "filler")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, unix.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return name
}

type lines struct {
	mu   sync.Mutex
	text string
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text += line + "\n"
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text, text)
}

// TestDiskFull fills the disk of a running hub, offers bans so that the store fails, and then frees the disk. While the disk is full, the hub must
// report this and refuse requests of commands. Afterwards the hub must accept bans without a restart by hand, and still have the earlier bans.
func TestDiskFull(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	c := onDisk(t, 64*megabyte, LeastDisk)
	ctx, stop := context.WithCancel(t.Context())
	var log lines
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, c, log.add) }()
	defer func() { stop(); <-ended }()
	say := func(p string) error {
		client, err := Dial(c)
		if err != nil {
			return err
		}
		defer client.Close()
		return client.Say(ctx, "", []netip.Prefix{netip.MustParsePrefix(p)}, time.Hour, "test")
	}
	if !testutil.Eventually(time.Minute, func() bool { return say("198.18.0.0/32") == nil }) {
		t.Fatal("the hub takes no ban at first")
	}
	status := joined(t, c)
	filler := fillDisk(t, c.dir)
	refused := ""
	for i := 1; i < 200 && !strings.Contains(refused, "is full"); i++ { // the first bans reach a store whose disk has just become full
		began := time.Now()
		if err := say(fmt.Sprintf("198.18.0.%d/32", i)); err != nil {
			refused = err.Error()
		}
		if strings.Contains(refused, "no hub can be reached") {
			t.Fatalf("with a full disk the command says after %v: %s", time.Since(began), refused)
		}
	}
	if !strings.Contains(refused, "the disk of "+c.dir+" is full") || !log.has("is full") {
		t.Fatalf("with a full disk the command says %q, the log\n%s", refused, log.text)
	}
	if client, err := Dial(c); err != nil {
		t.Error(err)
	} else {
		if _, err := client.Invite(ctx, "b", time.Hour); err == nil || !strings.Contains(err.Error(), "is full") {
			t.Errorf("with a full disk an invitation: %v", err)
		}
		if all, err := client.Nodes(ctx); err != nil || !strings.Contains(all[0].Problem, "is full") {
			t.Errorf("with a full disk the status is %+v: %v", all, err)
		}
		client.Close()
	}
	status.agent.Local([]node.Local{{Prefix: netip.MustParsePrefix("198.18.2.0/32"), Start: time.Now(), End: time.Now().Add(time.Hour)}}, false)
	if !testutil.Eventually(time.Minute, func() bool { return strings.Contains(status.agent.Status().Refusing, "is full") }) {
		t.Errorf("with a full disk a node says %+v", status.agent.Status())
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if !testutil.Eventually(time.Minute, func() bool { return say("198.18.1.0/32") == nil }) {
		t.Fatalf("with space again the hub takes no ban: %v, the log\n%s", say("198.18.1.0/32"), log.text)
	}
	if !log.has("has space again") {
		t.Errorf("the log does not say that there is space again:\n%s", log.text)
	}
	var client *Client
	var err error
	if !testutil.Eventually(time.Minute, func() bool { client, err = Dial(c); return err == nil }) { // on a busy machine the TLS handshake may take too long
		t.Fatal(err)
	}
	defer client.Close()
	if all, err := client.Nodes(ctx); err != nil || all[0].Problem != "" || all[0].Prefixes < 2 {
		t.Errorf("with space again the status is %+v: %v", all, err)
	}
	if !testutil.Eventually(time.Minute, func() bool { s := status.agent.Status(); return s.Sent == 1 && s.Waiting == 0 && s.Refusing == "" }) {
		t.Errorf("with space again a node says %+v", status.agent.Status())
	}
}

// nobody is a node's host to which no packets arrive.
type nobody struct{ agent *node.Agent }

func (*nobody) Block(context.Context, []node.Ban) (map[netip.Prefix]error, error) { return nil, nil }
func (*nobody) Unblock(context.Context, []netip.Prefix, bool) ([]netip.Prefix, error) {
	return nil, nil
}
func (*nobody) Never(context.Context) (func(netip.Prefix) bool, error) {
	return func(netip.Prefix) bool { return false }, nil
}
func (*nobody) Capacity() int { return 0 }

// joined makes a node join with an invitation, and runs it until the test ends.
func joined(t *testing.T, c *Config) *nobody {
	t.Helper()
	client, err := Dial(c)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	i, err := client.Invite(t.Context(), "a", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	file, err := node.Join(t.Context(), t.TempDir(), i.Token(), node.File{})
	if err != nil {
		t.Fatal(err)
	}
	n := &nobody{}
	if n.agent, err = node.New(file, n, func(string, error) {}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = n.agent.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	if !testutil.Eventually(time.Minute, func() bool { return n.agent.Status().Connected }) {
		t.Fatal("the node is not connected")
	}
	return n
}

// TestSmallDisk runs a hub on a disk of exactly the configured size. It has as many bans as the hub accepts, each replaced twice, with the longest
// names and reasons, and with policies. The disk must never become full, no ban may be lost, and one more ban must be refused. The hub must report a
// smaller disk when it starts.
func TestSmallDisk(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	c := onDisk(t, (LeastDisk-1)*megabyte, LeastDisk)
	if _, err := Start(t.Context(), c, func(string) {}); err == nil || !strings.Contains(err.Error(), "which needs 48 MB for") {
		t.Errorf("a disk that is too small: %v", err)
	}
	c = onDisk(t, LeastDisk*megabyte+100<<10, LeastDisk)
	c.Plain = true
	h, err := Start(t.Context(), c, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, name := range longNames {
		if err := h.Enrol(name, newPublicKey(t)); err != nil {
			t.Fatal(err)
		}
	}
	most, policy := c.Holds()
	least := int64(1 << 40)
	for turn := range 3 {
		for at := 0; at < most; at += wire.MaxItems {
			for range 3 { // the step is repeated in case the machine is busy
				if !slices.Contains(h.request(manyBans(turn, at, min(most-at, wire.MaxItems))), wire.Later) {
					break
				}
			}
			free, _ := freeBytes(c.dir)
			least = min(least, free)
		}
		client, err := Dial(c, nats.InProcessServer(h.server))
		if err != nil {
			t.Fatal(err)
		}
		content := map[string][]byte{fmt.Sprintf("%064d", turn): make([]byte, policy)}
		if err := client.Put(t.Context(), nil, []byte("order"), uint64(turn+1), content); err != nil && !strings.Contains(err.Error(), "somebody else") {
			t.Fatal(err)
		}
		if err := client.Put(t.Context(), nil, nil, 9, map[string][]byte{"0": make([]byte, policy+1)}); err == nil || !strings.Contains(err.Error(), "suffice for") {
			t.Errorf("a policy that is too large: %v", err)
		}
		client.Close()
	}
	if got := h.request(manyBans(2, most, 1)); got[0] != wire.Refused {
		t.Errorf("one ban more than there is space for: %v", got)
	}
	t.Logf("%d prefixes; at least %d bytes of %d were free", most, least, LeastDisk*megabyte)
	if info, err := h.bans.Info(t.Context()); err != nil || info.State.Msgs != uint64(most) || h.store.writable() != nil || least < fullBelow {
		t.Errorf("%+v %v %v: want %d records; at least %d bytes were free", info.State, err, h.store.writable(), most, least)
	}
}

// TestSmallCluster runs three hubs on disks of exactly the configured size, with as many bans as they accept, each replaced twice. No disk may become
// full, because the configured space includes the write-ahead log.
func TestSmallCluster(t *testing.T) {
	if !testutil.Inside(t) {
		return
	}
	var peers []Peer
	for i, name := range []string{"a", "b", "c"} {
		p, err := NewPeer(name, fmt.Sprintf("127.0.0.%d", i+1))
		if err != nil {
			t.Fatal(err)
		}
		peers = append(peers, p)
	}
	root := t.TempDir()
	dirs, err := Init(root, peers, LeastDisk)
	if err != nil {
		t.Fatal(err)
	}
	hubs := make([]*Hub, len(dirs))
	var starting sync.WaitGroup
	for i, dir := range dirs {
		store := filepath.Join(dir, "nats")
		err := os.Mkdir(store, 0o700)
		if err == nil {
			err = unix.Mount("hub", store, "tmpfs", 0, fmt.Sprintf("size=%d", LeastDisk*megabyte))
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(store, unix.MNT_DETACH) })
		starting.Go(func() {
			c, err := Read(dir)
			if err == nil {
				hubs[i], err = Start(t.Context(), c, func(string) {})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	starting.Wait()
	if t.Failed() {
		return
	}
	defer func() {
		for _, h := range hubs {
			h.Close()
		}
	}()
	for _, name := range longNames {
		if err := hubs[0].Enrol(name, newPublicKey(t)); err != nil {
			t.Fatal(err)
		}
	}
	if !testutil.Eventually(time.Minute, func() bool { return hubs[0].members.joined(longNames[1]) }) {
		t.Fatal("the hubs do not know the nodes")
	}
	most, _ := hubs[0].config.Holds()
	least := int64(1 << 40)
	for turn := range 3 {
		for at := 0; at < most; at += wire.MaxItems {
			if !testutil.Eventually(time.Minute, func() bool {
				return !slices.Contains(hubs[0].request(manyBans(turn, at, min(most-at, wire.MaxItems))), wire.Later)
			}) {
				t.Fatal("the hubs take no bans")
			}
			for _, dir := range dirs {
				free, _ := freeBytes(filepath.Join(dir, "nats"))
				least = min(least, free)
			}
		}
	}
	t.Logf("%d prefixes; at least %d bytes of %d were free", most, least, LeastDisk*megabyte)
	if info, err := hubs[0].bans.Info(t.Context()); err != nil || info.State.Msgs != uint64(most) || least < fullBelow {
		t.Errorf("%+v %v: want %d records; at least %d bytes were free", info.State, err, most, least)
	}
}

// longNames are the names of two nodes. One node alone may ban half of the prefixes.
var longNames = [2]string{strings.Repeat("a", 32), strings.Repeat("b", 32)}

// manyBans returns an offer with bans of n prefixes, starting at a number. Two nodes make the bans in turn. The reason has the greatest length.
func manyBans(turn, at, n int) offer {
	o := offer{}
	now := time.Now()
	for i := at; i < at+n; i++ {
		o.said = append(o.said, wire.Said{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{198, byte(18 + i>>16), byte(i >> 8), byte(i)}), 32),
			Statement: wire.Statement{Origin: longNames[i%2], Seq: wire.NextSequence(now, 0), Until: now.Add(time.Duration(turn+1) * time.Hour).UnixMilli(),
				Reason: strings.Repeat("r", wire.MaxReason)}})
	}
	return o
}
