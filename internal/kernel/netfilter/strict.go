// SPDX-License-Identifier: Apache-2.0

// This file makes conntrack strict as long as a policy needs that, and then restores the host's setting. Loose conntrack treats a packet of an
// unknown TCP connection as part of an existing connection. SYNPROXY cannot work then.

package netfilter

import (
	"fmt"
	"strconv"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// beStrict makes conntrack strict. It first stores the host's setting in the state, so that the setting can be restored if this process dies.
func beStrict(state *datapath.State) error {
	was, err := Loose()
	if was == nil || *was == 0 || err != nil {
		return err
	}
	if err := state.KeepSetting([]byte(strconv.Itoa(*was))); err != nil {
		return err
	}
	return setLoose(0)
}

// Keep makes conntrack strict if `needed` is true. Otherwise it restores the host's setting from the state. The caller must hold the lock of the state.
func Keep(state *datapath.State, needed bool) error {
	if needed {
		return beStrict(state)
	}
	was, err := state.HostSetting()
	if was == nil || err != nil {
		return err
	}
	n, err := strconv.Atoi(string(was))
	if err != nil {
		return fmt.Errorf("what %s was: %w", looseFile, err)
	}
	if err := setLoose(n); err != nil {
		return err
	}
	return state.ForgetSetting()
}
