//! Sets of points on a line, as sorted spans.

/// A point on a line: an address, or a service.
pub(crate) trait Point: Copy + Ord {
    /// The point after it; `None` at the end of the line.
    fn next(self) -> Option<Self>;
    /// The point before it; `None` at the start of the line.
    fn previous(self) -> Option<Self>;
}

impl Point for u32 {
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }

    fn previous(self) -> Option<Self> {
        self.checked_sub(1)
    }
}

impl Point for u128 {
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }

    fn previous(self) -> Option<Self> {
        self.checked_sub(1)
    }
}

/// Inclusive spans, sorted, with a gap between each and the next: equal sets are equal values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Set<T>(Vec<(T, T)>);

impl<T: Point> Set<T> {
    pub const fn empty() -> Self {
        Self(Vec::new())
    }

    pub fn span(first: T, last: T) -> Self {
        Self(vec![(first, last)])
    }

    /// The union of spans in any order.
    pub fn of_spans(mut spans: Vec<(T, T)>) -> Self {
        spans.sort_unstable();
        let mut merged: Vec<(T, T)> = Vec::with_capacity(spans.len());
        for (first, last) in spans {
            match merged.last_mut() {
                // Overlaps the last one, or starts right behind it.
                Some(open) if open.1.next().is_none_or(|next| first <= next) => open.1 = open.1.max(last),
                _ => merged.push((first, last)),
            }
        }
        Self(merged)
    }

    pub fn spans(&self) -> &[(T, T)] {
        &self.0
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lowest point.
    pub fn first(&self) -> Option<T> {
        self.0.first().map(|(first, _)| *first)
    }

    pub fn contains(&self, point: T) -> bool {
        let index = self.0.partition_point(|(_, last)| *last < point);
        self.0.get(index).is_some_and(|(first, _)| *first <= point)
    }

    pub fn union(&self, other: &Self) -> Self {
        match (&self.0[..], &other.0[..]) {
            ([], _) => other.clone(),
            (_, []) => self.clone(),
            (own, others) => Self::of_spans([own, others].concat()),
        }
    }

    pub fn intersect(&self, other: &Self) -> Self {
        let mut common = Vec::new();
        let (mut own, mut others) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(a), Some(b)) = (own.peek(), others.peek()) {
            let (first, last) = (a.0.max(b.0), a.1.min(b.1));
            if first <= last {
                common.push((first, last));
            }
            // Whichever ends first meets nothing more.
            if a.1 < b.1 {
                own.next()
            } else {
                others.next()
            };
        }
        Self(common)
    }

    pub fn minus(&self, other: &Self) -> Self {
        let mut left = Vec::new();
        let mut others = &other.0[..];
        for &(first, last) in &self.0 {
            others = &others[others.partition_point(|cut| cut.1 < first)..];
            let mut open = Some(first);
            for cut in others.iter().take_while(|cut| cut.0 <= last) {
                let end = cut.0.previous();
                left.extend(open.zip(end).filter(|(start, end)| start <= end));
                open = cut.1.next();
            }
            left.extend(open.filter(|start| *start <= last).map(|start| (start, last)));
        }
        Self(left)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Both ends of the line, where the arithmetic could wrap, and the middle.
    fn points() -> Vec<u32> {
        (0..20).chain(100..120).chain(u32::MAX - 19..=u32::MAX).collect()
    }

    fn spans() -> impl Strategy<Value = Vec<(u32, u32)>> {
        let point = prop::sample::select(points());
        prop::collection::vec((point.clone(), point).prop_map(|(a, b)| (a.min(b), a.max(b))), 0..6)
    }

    fn naive(spans: &[(u32, u32)]) -> BTreeSet<u32> {
        let is_in = |point: &u32| spans.iter().any(|(first, last)| first <= point && point <= last);
        points().into_iter().filter(is_in).collect()
    }

    fn members(set: &Set<u32>) -> BTreeSet<u32> {
        points().into_iter().filter(|point| set.contains(*point)).collect()
    }

    proptest! {
        #[test]
        fn sets_do_what_sets_of_points_do(a in spans(), b in spans()) {
            let (one, two) = (Set::of_spans(a.clone()), Set::of_spans(b.clone()));
            let (a, b) = (naive(&a), naive(&b));
            prop_assert_eq!(members(&one), a.clone());
            prop_assert_eq!(one.first(), a.first().copied());
            let (union, common, rest) = (one.union(&two), one.intersect(&two), one.minus(&two));
            prop_assert_eq!(members(&union), &a | &b);
            prop_assert_eq!(members(&common), &a & &b);
            prop_assert_eq!(members(&rest), &a - &b);
            for set in [&one, &union, &common, &rest] {
                let is_apart = |pair: &[(u32, u32)]| pair[0].1.next().is_some_and(|next| next < pair[1].0);
                prop_assert!(set.spans().windows(2).all(is_apart), "{:?}", set);
                prop_assert!(set.spans().iter().all(|(first, last)| first <= last));
            }
        }
    }
}
