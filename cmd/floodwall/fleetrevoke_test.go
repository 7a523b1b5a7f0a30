// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/fleet/node"
)

// knock connects to one hub with the key of the node, as a thief of the key would.
func (n *nodeHost) knock(hub int) error {
	n.t.Helper()
	file, err := node.Read(n.flags[1])
	if err != nil {
		n.t.Fatal(err)
	}
	key, err := nkeys.FromSeed([]byte(file.Seed))
	if err != nil {
		n.t.Fatal(err)
	}
	public, err := key.PublicKey()
	if err != nil {
		n.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(file.CA))
	c, err := nats.Connect(fmt.Sprintf("tls://10.9.0.%d:4222", hub+1), nats.Nkey(public, key.Sign), nats.Secure(&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}),
		nats.Timeout(patience), nats.NoReconnect())
	if err == nil {
		c.Close()
	}
	return err
}

// testRevoke revokes the node while one of three hubs is down. After that, no hub may accept the node's key, including the hub that was down. No hub
// may keep the connection of the node's daemon. Another node must not be affected.
func (n *nodeHost) testRevoke(fleet string, down int, other *nodeHost) {
	n.t.Helper()
	names := []string{"a", "b", "c"}
	up := []int{(down + 1) % 3, (down + 2) % 3}
	for _, hub := range up {
		if err := n.knock(hub); err != nil {
			n.t.Fatalf("hub %s refuses node %s before it is revoked: %v", names[hub], n.name, err)
		}
	}
	mustFloodwall(n.t, "hub", "revoke", n.name, "--dir", filepath.Join(fleet, names[up[0]]))
	refused := func(hub int) {
		n.t.Helper()
		waitFor(n.t, "hub "+names[hub]+" refuses the revoked node", func() bool {
			err := n.knock(hub)
			return err != nil && strings.Contains(strings.ToLower(err.Error()), "authorization")
		})
	}
	for _, hub := range up {
		refused(hub)
	}
	waitFor(n.t, "the revoked node says that it was revoked", func() bool {
		return strings.Contains(n.run("status"), "goes on by itself: the hubs refuse its key: it was revoked")
	})
	back := filepath.Join(fleet, names[down])
	startHub(n.t, back)
	refused(down)
	waitFor(n.t, "the hub that is back serves the others", func() bool {
		out, err := exec.Command("floodwall", "hub", "nodes", "--dir", back).CombinedOutput()
		return err == nil && strings.Contains(string(out), other.name) && other.knock(down) == nil
	})
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		for hub := range names {
			if n.knock(hub) == nil {
				n.t.Fatalf("hub %s lets the revoked node in", names[hub])
			}
		}
	}
	n.testInvitedAgain(back)
}

// testInvitedAgain invites a revoked node again. The node must be able to join under the same name without leaving. To join under another name, it
// must leave first. The error must name the command to leave, with the flags of the node's instance.
func (n *nodeHost) testInvitedAgain(hub string) {
	n.t.Helper()
	invited := func(name string) []string {
		return strings.Fields(mustFloodwall(n.t, "hub", "invite", name, "--dir", hub))[1:]
	}
	leave := fmt.Sprintf("`floodwall leave --bpffs %s --state %s` first", n.flags[3], n.flags[1])
	if out, err := n.try(invited("another")...); err == nil || !strings.Contains(out, "this host is node "+n.name+" of a fleet already") || !strings.Contains(out, leave) {
		n.t.Errorf("joins as another node, want %s: %v\n%s", leave, err, out)
	}
	n.run(invited(n.name)...)
	waitFor(n.t, "the node that was invited again is connected", func() bool { return strings.Contains(n.run("status"), "fleet: node "+n.name+", hub ") })
}
