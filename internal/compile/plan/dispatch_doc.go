// This file arranges a list of rules so that a packet is asked for few of them. Neighbouring rules that all ask for one
// field become a Lookup: the value of a packet's field selects a short list of those rules that can match it, in their order.
// The rules of a list keep all their tests. So a lookup may select too many rules, and never too few, and the first rule that
// matches stays the first one.

package plan
