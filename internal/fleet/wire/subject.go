// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// Subjects of NATS.
const (
	Bans    = "fw.ban"    // .FAMILY.HEX.LENGTH: the record of a prefix, kept in a stream
	Nodes   = "fw.node"   // .NAME.ban, .NAME.sync, .NAME.summary, .NAME.policy, .NAME.state: requests and reports of a node; only that node may publish there
	Members = "fw.member" // .NAME: the fleet's data about a node, kept in a stream
	Join    = "fw.join"   // .NAME: a node that has an invitation sends its key
	Admin   = "fw.admin"  // .VERB: requests of the hub's operators
	Live    = "fw.live"   // new records, to all nodes
	Beat    = "fw.beat"   // the time of a hub and the last record that it knows, to all nodes
	Views   = "fw.view"   // the fleet's view of the traffic, to all nodes
)

// OfferSubject is the subject on which a node sends its offers.
func OfferSubject(node string) string { return Nodes + "." + node + ".ban" }

// SyncSubject is the subject on which a node requests missed records.
func SyncSubject(node string) string { return Nodes + "." + node + ".sync" }

// SummarySubject is the subject on which a node sends its summaries.
func SummarySubject(node string) string { return Nodes + "." + node + ".summary" }

// Inbox is the prefix of the subjects for answers to a node. No other client may subscribe to them. The node's name is a token of its own, because
// wildcards in NATS permissions match only whole tokens.
func Inbox(node string) string { return "fw.inbox." + node }

// HubInbox is the prefix of the subjects for answers to hubs and their commands. No node has this name.
const HubInbox = "fw.inbox._hubs"

// Permissions are the subjects on which a user of NATS may publish and to which it may subscribe, with wildcards.
type Permissions struct{ Publish, Subscribe []string }

// Text returns a user with this key and these permissions, in the format of nats-server's configuration. When key is "", it returns only the
// permissions.
func (p Permissions) Text(key string) string {
	if key == "" {
		return fmt.Sprintf("publish: [%s], subscribe: [%s]", quoted(p.Publish), quoted(p.Subscribe))
	}
	return fmt.Sprintf("{nkey: %s, permissions: {publish: [%s], subscribe: [%s]}}", key, quoted(p.Publish), quoted(p.Subscribe))
}

func quoted(subjects []string) string { return `"` + strings.Join(subjects, `", "`) + `"` }

// NodePermissions returns the permissions of a node. A hub gives a node exactly these, and an existing cluster must not give more.
func NodePermissions(name string) Permissions {
	return Permissions{[]string{Nodes + "." + name + ".>"}, []string{Live, Beat, Views, Policies, Inbox(name) + ".>"}}
}

// HubPermissions returns the permissions of a hub that uses an existing cluster.
func HubPermissions() Permissions {
	return Permissions{[]string{"fw.>", "$JS.API.>"}, []string{"fw.>"}}
}

var nodeName = wording.Regexp(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// CheckName returns an error for an invalid node name.
func CheckName(name string) error {
	if nodeName().MatchString(name) {
		return nil
	}
	return fmt.Errorf("name %q: want 1 to 32 of a to z, 0 to 9 and -, none of them - at an end", name)
}

// NodeOf returns the name of the node in a subject.
func NodeOf(subject string) (string, error) {
	parts := strings.Split(subject, ".")
	if len(parts) != 4 || parts[0]+"."+parts[1] != Nodes {
		return "", fmt.Errorf("subject %q: want %s.NAME.VERB", subject, Nodes)
	}
	return parts[2], CheckName(parts[2])
}

// BanSubject is the subject of a prefix's record. The address is in hexadecimal, because keys must not contain colons.
func BanSubject(p netip.Prefix) string {
	family := "4"
	if p.Addr().Is6() {
		family = "6"
	}
	return Bans + "." + family + "." + hex.EncodeToString(p.Addr().AsSlice()) + "." + strconv.Itoa(p.Bits())
}

// origin returns an error if a name is not that of an origin: a node or the controller.
func origin(name string) (string, error) {
	if name == Controller {
		return name, nil
	}
	return name, CheckName(name)
}
