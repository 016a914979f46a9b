//! Book: nothing gets lost between `v2` and `v1`, whatever an object holds.

use kubewright_testing::conversion::check_round_trip;

use conversion_api::v1;
use conversion_api::v2;

#[test]
fn nothing_gets_lost_on_the_way_there_and_back() {
    check_round_trip::<v1::Book, v2::Book>();
}
