// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/floodwall/floodwall/internal/fleet/wire"
)

// joinUser is the prefix of the user name of a node that has an invitation, but no key yet.
const joinUser = "join."

// maxConnections is the largest number of connections of a node, and of an invitation. A further connection closes the oldest one, which may be dead.
const maxConnections = 3

// authenticator decides who may connect to the embedded server.
type authenticator struct {
	admin   string // the public key of hubs and their commands
	members *members
	seen    func(name string, at netip.Addr) // called with the address from which a node has connected

	mu     sync.Mutex
	server *server.Server
	open   map[string][]uint64  // connections by name of the node
	closed map[string]time.Time // time until which a node must not connect
	counts map[uint64]int64     // number of messages that a connection had sent at the last call of received
}

// Check admits a client and sets its permissions. Nodes may publish only below their own subject.
func (a *authenticator) Check(c server.ClientAuthentication) bool {
	o := c.GetOpts()
	if o.Nkey == "" {
		return a.checkInvited(c, o.Username, o.Password)
	}
	if !signed(o.Nkey, o.Sig, c.GetNonce()) {
		return false
	}
	if o.Nkey == a.admin {
		c.RegisterUser(&server.User{Username: "hub"})
		return true
	}
	name, ok := a.members.named(o.Nkey)
	if !ok || a.isShut(name, time.Now()) {
		return false
	}
	c.RegisterUser(&server.User{Username: name, Permissions: permissions(wire.NodePermissions(name))})
	a.opened(name, c.GetID())
	if at := addressOf(c.RemoteAddress()); at.IsValid() {
		go a.seen(name, at)
	}
	return true
}

// checkInvited admits a node with an invitation. The node may only send its key.
func (a *authenticator) checkInvited(c server.ClientAuthentication, user, password string) bool {
	name, ok := strings.CutPrefix(user, joinUser)
	if !ok || !a.members.invited(name, password, time.Now()) {
		return false
	}
	c.RegisterUser(&server.User{Username: user, Permissions: permissions(
		wire.Permissions{Publish: []string{wire.Join + "." + name}, Subscribe: []string{wire.Inbox("join_"+name) + ".>"}})})
	a.opened(user, c.GetID())
	return true
}

func permissions(p wire.Permissions) *server.Permissions {
	return &server.Permissions{Publish: &server.SubjectPermission{Allow: p.Publish}, Subscribe: &server.SubjectPermission{Allow: p.Subscribe}}
}

// signed reports whether a signature of a nonce was made with a key.
func signed(key, signature string, nonce []byte) bool {
	text, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil {
		return false
	}
	public, err := nkeys.FromPublicKey(key)
	return err == nil && len(nonce) > 0 && public.Verify(nonce, text) == nil
}

// opened records a connection of a node.
func (a *authenticator) opened(name string, id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	live := append(a.live(name), id)
	for len(live) > maxConnections {
		go a.server.DisconnectClientByID(live[0])
		live = live[1:]
	}
	a.open[name] = live
}

// live returns the existing connections of a node.
func (a *authenticator) live(name string) (list []uint64) {
	for _, id := range a.open[name] {
		if a.server.GetClient(id) != nil {
			list = append(list, id)
		}
	}
	return list
}

// received returns how many messages each node has sent since the last call.
func (a *authenticator) received() map[string]int {
	a.mu.Lock()
	defer a.mu.Unlock()
	received, counts := map[string]int{}, map[uint64]int64{}
	for name := range a.open {
		for _, id := range a.live(name) {
			c, err := a.server.Connz(&server.ConnzOptions{CID: id})
			if err != nil || len(c.Conns) == 0 {
				continue // the connection has ended
			}
			counts[id] = c.Conns[0].InMsgs
			received[name] += int(counts[id] - a.counts[id])
		}
	}
	a.counts = counts
	return received
}

// connected reports whether a node has a connection to this hub.
func (a *authenticator) connected(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.server != nil && len(a.live(name)) > 0
}

// disconnect ends all connections of a node.
func (a *authenticator) disconnect(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end(name)
}

// shut ends all connections of a node, and refuses new ones until a time. It returns false when the node is already refused, or when the hub has no
// embedded server to which nodes connect.
func (a *authenticator) shut(name string, until time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.server == nil || time.Now().Before(a.closed[name]) {
		return false
	}
	a.closed[name] = until
	a.end(name)
	return true
}

func (a *authenticator) isShut(name string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Before(a.closed[name]) {
		return true
	}
	delete(a.closed, name)
	return false
}

func (a *authenticator) end(name string) {
	if a.server == nil {
		return
	}
	for _, id := range a.live(name) {
		_ = a.server.DisconnectClientByID(id) // the connection may have ended
	}
	delete(a.open, name)
}

// hashed returns the hash of an invitation's secret. The hash is stored instead of the secret.
func hashed(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func sameText(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
