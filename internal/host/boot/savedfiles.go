// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"io/fs"

	"github.com/floodwall/floodwall/internal/text/wording"
)

// savedFiles are the files with saved rules of distributions. A unit restores these rules at boot.
var savedFiles = []string{
	"etc/iptables/rules.v4", "etc/iptables/rules.v6", "etc/iptables/ipsets", "etc/sysconfig/iptables", "etc/sysconfig/ip6tables",
	"etc/iptables/iptables.rules", "etc/iptables/ip6tables.rules", "etc/nftables.conf", "etc/sysconfig/nftables.conf",
	"etc/sysconfig/ipset", "etc/ipset.conf",
}

// ownSaved matches a generation of Floodwall in the output of nft, iptables-save and ipset.
var ownSaved = wording.Regexp(`(?m)^table (?:inet|netdev) floodwall[0-9a-ft]*-[0-9]|FLOODWALL[0-9A-FT]*-[0-9]|^(?:create|add) floodwall[0-9a-ft]*-[0-9]`)

// LeaveOut is a command that removes all rules and sets of Floodwall from saved rules of nft, iptables and ipset. File names may follow it.
const LeaveOut = `sed -e '/^table [a-z]* floodwall[0-9a-ft]*-[0-9]/,/^}/d' -e '/^\tchain FLOODWALL[0-9A-FT]*-[0-9]/,/^\t}/d' -e '/FLOODWALL[0-9A-FT]*-[0-9]/d' -e '/^[a-z]* floodwall[0-9a-ft]*-[0-9]/d'`

// SavedWithOwn returns the files of saved rules in a root directory that contain rules of Floodwall. At boot a saved table of nftables would decide
// in addition to the policy. iptables-restore refuses a whole file if it names ipsets that do not exist.
func SavedWithOwn(root fs.FS) (files []string) {
	for _, name := range savedFiles {
		text, err := fs.ReadFile(root, name)
		if err == nil && ownSaved().Match(text) {
			files = append(files, "/"+name)
		}
	}
	return files
}
