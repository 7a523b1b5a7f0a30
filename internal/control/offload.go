package control

import (
	"context"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/floodwall/floodwall/internal/ir"
	"github.com/floodwall/floodwall/internal/packet"
)

// tags warns when the policy asks for VLAN tags and a device takes them off before XDP sees the frame: the tag is then
// in the descriptor, and each frame looks as if it had none.
func (a *apply) tags(context.Context) error {
	if !slices.ContainsFunc(a.compiled.Program.Rules, testsVLAN) {
		return nil
	}
	for _, to := range a.attachments() {
		if stripsVLAN(to.Device) {
			a.notes = append(a.notes, fmt.Sprintf("device %s takes VLAN tags off before the policy, which asks for them, "+
				"can see them: `ethtool -K %s rxvlan off`", to.Device, to.Device))
		}
	}
	return nil
}

func testsVLAN(r ir.Rule) bool {
	return slices.ContainsFunc(r.Match, func(m ir.Match) bool { return m.Field == packet.VLAN })
}

// flagRXVLAN is ETH_FLAG_RXVLAN of include/uapi/linux/ethtool.h.
const flagRXVLAN = 1 << 8

// stripsVLAN asks a device whether its receive VLAN offload is on. One that cannot be asked has none.
func stripsVLAN(device string) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil || len(device) >= unix.IFNAMSIZ {
		return false
	}
	defer unix.Close(fd)
	value := struct{ command, data uint32 }{command: unix.ETHTOOL_GFLAGS} // struct ethtool_value
	request := struct {                                                   // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(&value)}
	copy(request.name[:], device)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
	return errno == 0 && value.data&flagRXVLAN != 0
}
