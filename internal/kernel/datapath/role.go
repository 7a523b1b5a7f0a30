package datapath

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// role says what a program in the state directory stands for: which generation decides, 0 for none, before and after
// the deadline of a trial. Of a generation's own program both are that generation.
type role struct {
	during, after int
	trial         *Trial // nil for a generation's own program
}

// now is the generation that decides at this moment.
func (r role) now() int {
	if r.trial != nil && r.trial.Expired() {
		return r.after
	}
	return r.during
}

// roles lists the programs that are pinned in the state directory. What another command removes meanwhile is left out.
func (s *State) roles() (map[ebpf.ProgramID]role, error) {
	roles := map[ebpf.ProgramID]role{}
	note := func(path string, r role) error {
		id, err := pinnedID(path)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if _, known := roles[id]; err == nil && !known {
			roles[id] = r
		}
		return err
	}
	trials, err := s.trials()
	if err != nil {
		return nil, err
	}
	for _, t := range trials {
		for _, v := range variants {
			if err := note(s.path(trialName(t.New), v.pin()), v.role(t)); err != nil {
				return nil, err
			}
		}
	}
	numbers, err := s.generations()
	if err != nil {
		return nil, err
	}
	for _, n := range numbers {
		for _, pin := range []string{pinNative, pinLinear} {
			if err := note(s.path(generationName(n), pin), role{during: n, after: n}); err != nil {
				return nil, err
			}
		}
	}
	renewals, err := s.renewals()
	if err != nil {
		return nil, err
	}
	for _, n := range renewals {
		for _, pin := range []string{pinNative, pinLinear} {
			if err := note(s.path(renewalName(n), pin), role{during: n, after: n}); err != nil {
				return nil, err
			}
		}
	}
	return roles, nil
}

// pinnedID is the number of a pinned program.
func pinnedID(path string) (ebpf.ProgramID, error) {
	prog, err := ebpf.LoadPinnedProgram(path, nil)
	if err != nil {
		return 0, err
	}
	defer prog.Close()
	id, err := programID(prog)
	if err != nil {
		return 0, fmt.Errorf("program %s: %w", path, err)
	}
	return id, nil
}

// programID asks for the number of a program and nothing else: the first two words of struct bpf_prog_info (linux/bpf.h). The daemon looks
// several times a second, and (*ebpf.Program).Info also reads all that the kernel says of maps, functions and lines.
func programID(prog *ebpf.Program) (ebpf.ProgramID, error) {
	var info struct{ kind, id uint32 }
	var pinned runtime.Pinner
	pinned.Pin(&info)
	defer pinned.Unpin()
	attr := struct {
		fd, size uint32
		info     uint64
	}{uint32(prog.FD()), uint32(unsafe.Sizeof(info)), uint64(uintptr(unsafe.Pointer(&info)))}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_OBJ_GET_INFO_BY_FD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(prog)
	if errno != 0 {
		return 0, errno
	}
	return ebpf.ProgramID(info.id), nil
}

// situation is what the devices run when a change begins.
type situation struct {
	devices []*Device
	roles   map[ebpf.ProgramID]role
	trial   *Trial // the newest that a device runs, nil when there is none
	base    int    // the generation to return to, 0 when there is none
	mixed   bool   // some devices run another generation than base: a trial, or what a change left that died half way
}

// situation looks at the devices. The caller holds the lock, and closes it.
//
// base is the generation that ran on all devices last. A change that dies half way leaves two, and numbers tell which
// one was there first, except after a Rollback, which returns to a lower number: there the one that it was about to
// return to is the better half.
func (s *State) situation() (*situation, error) {
	devices, err := s.devices()
	if err != nil {
		return nil, err
	}
	v := &situation{devices: devices}
	if v.roles, err = s.roles(); err != nil {
		v.close()
		return nil, err
	}
	for _, d := range devices {
		r, known := v.roles[d.program]
		if !known {
			v.mixed = true
			continue
		}
		ran := r.during
		if r.trial != nil {
			ran = r.trial.Old
			if v.trial == nil || v.trial.New < r.trial.New {
				v.trial = r.trial
			}
		}
		if ran != 0 && (v.base == 0 || ran < v.base) {
			v.base = ran
		}
	}
	v.mixed = v.mixed || slices.ContainsFunc(devices, func(d *Device) bool {
		r := v.roles[d.program]
		return r.trial != nil || r.during != v.base
	})
	return v, nil
}

func (v *situation) close() { closeDevices(v.devices) }
