// This file makes conntrack strict as long as a policy needs that, and gives the host back what it had. Loose conntrack takes a
// packet of an unknown TCP connection for one of a connection that it may follow. SYNPROXY cannot work then.

package netfilter

import (
	"fmt"
	"strconv"

	"github.com/floodwall/floodwall/internal/kernel/datapath"
)

// beStrict makes conntrack strict. What the host had is in the state before that, where it is found however this process
// ends.
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

// Keep makes conntrack strict when that is needed, and else what the host had it be, which the state remembers. The caller holds the
// lock of the state.
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
