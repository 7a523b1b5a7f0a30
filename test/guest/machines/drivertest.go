// This file has what network drivers other than veth do to Floodwall. Its tests boot one machine in QEMU with a card of
// each kind; the cards' cables end in the test. In the short form that is done for all drivers with few frames, in the long form
// (FLOODWALL_LONG=1) with more.

package machines
