package boot

import (
	"io/fs"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// savedFiles are where distributions keep the rules that a unit restores at boot.
var savedFiles = []string{
	"etc/iptables/rules.v4", "etc/iptables/rules.v6", "etc/iptables/ipsets", "etc/sysconfig/iptables", "etc/sysconfig/ip6tables",
	"etc/iptables/iptables.rules", "etc/iptables/ip6tables.rules", "etc/nftables.conf", "etc/sysconfig/nftables.conf",
	"etc/sysconfig/ipset", "etc/ipset.conf",
}

// ownSaved finds a generation of Floodwall in what nft, iptables-save and ipset print.
var ownSaved = wording.Regexp(`(?m)^table (?:inet|netdev) floodwall[0-9a-ft]*-[0-9]|FLOODWALL[0-9A-FT]*-[0-9]|^(?:create|add) floodwall[0-9a-ft]*-[0-9]`)

// LeaveOut is a command that takes all of Floodwall out of saved rules of nft, iptables and ipset; files or nothing follow it.
const LeaveOut = `sed -e '/^table [a-z]* floodwall[0-9a-ft]*-[0-9]/,/^}/d' -e '/^\tchain FLOODWALL[0-9A-FT]*-[0-9]/,/^\t}/d' -e '/FLOODWALL[0-9A-FT]*-[0-9]/d' -e '/^[a-z]* floodwall[0-9a-ft]*-[0-9]/d'`

// SavedWithOwn are the files of saved rules, in a root directory, that hold some of Floodwall's. At boot a table of nftables among them decides
// beside the policy, and iptables-restore refuses a file whose ipsets are not there, with all other rules in it.
func SavedWithOwn(root fs.FS) (files []string) {
	for _, name := range savedFiles {
		text, err := fs.ReadFile(root, name)
		if err == nil && ownSaved().Match(text) {
			files = append(files, "/"+name)
		}
	}
	return files
}
