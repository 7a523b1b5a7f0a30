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
	Nodes   = "fw.node"   // .NAME.ban, .NAME.sync, .NAME.summary, .NAME.policy, .NAME.state: what a node asks and says; nobody else may publish there
	Members = "fw.member" // .NAME: what the fleet knows of a node, kept in a stream
	Join    = "fw.join"   // .NAME: a node that has an invitation sends its key
	Admin   = "fw.admin"  // .VERB: requests of those who run the hub
	Live    = "fw.live"   // records that were just kept, to all nodes
	Beat    = "fw.beat"   // the time of a hub and the last record that it knows, to all nodes
	Views   = "fw.view"   // what all nodes see together, to all nodes
)

// OfferSubject and SyncSubject are where a node sends its requests.
func OfferSubject(node string) string { return Nodes + "." + node + ".ban" }

// SyncSubject is where a node asks for what it has missed.
func SyncSubject(node string) string { return Nodes + "." + node + ".sync" }

// SummarySubject is where a node says what it sees.
func SummarySubject(node string) string { return Nodes + "." + node + ".summary" }

// Inbox begins the subjects of answers to a node. Nobody else may subscribe to them. A node has a token of the subject to itself, as
// permissions of NATS have wildcards for whole tokens only.
func Inbox(node string) string { return "fw.inbox." + node }

// HubInbox begins the subjects of answers to hubs and their commands. No node has this name.
const HubInbox = "fw.inbox._hubs"

// Permissions are the subjects to which a user of NATS publishes and subscribes, with wildcards.
type Permissions struct{ Publish, Subscribe []string }

// Text is the user of a key in the configuration of nats-server, or the permissions alone when key is "".
func (p Permissions) Text(key string) string {
	if key == "" {
		return fmt.Sprintf("publish: [%s], subscribe: [%s]", quoted(p.Publish), quoted(p.Subscribe))
	}
	return fmt.Sprintf("{nkey: %s, permissions: {publish: [%s], subscribe: [%s]}}", key, quoted(p.Publish), quoted(p.Subscribe))
}

func quoted(subjects []string) string { return `"` + strings.Join(subjects, `", "`) + `"` }

// NodePermissions are those of a node. A hub gives no node more, and neither must an existing cluster.
func NodePermissions(name string) Permissions {
	return Permissions{[]string{Nodes + "." + name + ".>"}, []string{Live, Beat, Views, Policies, Inbox(name) + ".>"}}
}

// HubPermissions are those of a hub that uses an existing cluster.
func HubPermissions() Permissions {
	return Permissions{[]string{"fw.>", "$JS.API.>"}, []string{"fw.>"}}
}

var nodeName = wording.Regexp(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

// CheckName tells why a node cannot have a name.
func CheckName(name string) error {
	if nodeName().MatchString(name) {
		return nil
	}
	return fmt.Errorf("name %q: want 1 to 32 of a to z, 0 to 9 and -, none of them - at an end", name)
}

// NodeOf is the name of the node in a subject of its own.
func NodeOf(subject string) (string, error) {
	parts := strings.Split(subject, ".")
	if len(parts) != 4 || parts[0]+"."+parts[1] != Nodes {
		return "", fmt.Errorf("subject %q: want %s.NAME.VERB", subject, Nodes)
	}
	return parts[2], CheckName(parts[2])
}

// BanSubject is where the record of a prefix is kept. The address is in hexadecimal, as keys allow no colon.
func BanSubject(p netip.Prefix) string {
	family := "4"
	if p.Addr().Is6() {
		family = "6"
	}
	return Bans + "." + family + "." + hex.EncodeToString(p.Addr().AsSlice()) + "." + strconv.Itoa(p.Bits())
}

// origin reads who says something: a node or the controller.
func origin(name string) (string, error) {
	if name == Controller {
		return name, nil
	}
	return name, CheckName(name)
}
