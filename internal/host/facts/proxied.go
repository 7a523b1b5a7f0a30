// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/kernel/nftable"
)

// HasProxied reports whether conntrack has connections that SYNPROXY has opened.
func HasProxied() (bool, error) {
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
		request.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
		found := false
		err := request.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(entry []byte) bool {
			found = found || isProxied(entry)
			return true
		})
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return false, fmt.Errorf("connections that SYNPROXY began: %w", err)
		}
		if found {
			return true, nil
		}
	}
	return false, nil
}

// isProxied reports whether an entry of conntrack has the extension that SYNPROXY adds to its connections.
func isProxied(entry []byte) bool {
	const synproxy = 24 // CTA_SYNPROXY of linux/netfilter/nfnetlink_conntrack.h
	a, err := nftable.ReadAnswer(entry)
	return err == nil && a.Attributes[synproxy] != nil
}
